"""Types that the oldest numpy and pyarrow do not have: None there (`make test-oldest`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

STRING_VIEW: Any = pa.string_view() if hasattr(pa, "string_view") else None
BINARY_VIEW: Any = pa.binary_view() if hasattr(pa, "binary_view") else None
LIST_VIEW: Any = pa.list_view(pa.string()) if hasattr(pa, "list_view") else None
STRING_DTYPE: Any = np.dtypes.StringDType() if hasattr(np.dtypes, "StringDType") else None
