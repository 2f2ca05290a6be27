"""`make pictures`: trains what is not kept yet, draws the pictures of `scores.md` and fills its tables."""

from docs.measurements import measurements
from docs.pictures import figures, write
from docs.tables import PAGE, filled

found = measurements(print)
PAGE.write_text(filled(PAGE.read_text(), found))
for path in write(figures(found)):
    print(path.name)
