"""These tests need a GPU and fla; elsewhere none is collected."""

import torch

collect_ignore_glob = [] if torch.cuda.is_available() else ["test_*.py"]
