"""Build KEDA's operator from its Go module, for the test that runs it.

The triggers `prometheus` and `metrics-api` are all that is built in: the clients of all other sources take most of the
time. Even so it takes ten minutes of two cores.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "v2.21.0"
MODULE = f"github.com/kedacore/keda/v2@{VERSION}"
KEPT = frozenset(
    {"scaler.go", "prometheus_scaler.go", "metrics_api_scaler.go", "cron_scaler.go", "cpu_memory_scaler.go"}
)
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
BUILT = CACHE / "promptgroup" / "keda-operator" / VERSION / "keda-operator"

_TRIGGERS = """switch triggerType {
	case "prometheus":
		return scalers.NewPrometheusScaler(config)
	case "metrics-api":
		return scalers.NewMetricsAPIScaler(config, client)
	default:
		return nil, fmt.Errorf("no scaler found for type: %s", triggerType)
	}
"""
_CONSTANT = 'package scalers\n\nconst externalMetricType = "External"\n'
"""The kept files use it, and it is in one of the others."""


def main() -> int:
    """Build it unless it is there; print its path."""
    if not BUILT.exists():
        listed = subprocess.run(["go", "mod", "download", "-json", MODULE], check=True, capture_output=True, cwd="/")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "keda"
            shutil.copytree(json.loads(listed.stdout)["Dir"], source)
            subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
            trim(source)
            BUILT.parent.mkdir(parents=True, exist_ok=True)
            command = ["go", "build", "-trimpath", "-ldflags=-s -w", f"-o={BUILT}.new", "./cmd/operator"]
            environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
            subprocess.run(command, check=True, cwd=source, env=environment)
        Path(f"{BUILT}.new").rename(BUILT)
    print(BUILT)
    return 0


def trim(source: Path) -> None:
    """Leave out all triggers but two."""
    scalers = source / "pkg" / "scalers"
    for file in scalers.glob("*.go"):
        if file.name not in KEPT:
            file.unlink()
    (scalers / "external_metric_type.go").write_text(_CONSTANT)
    builder = source / "pkg" / "scaling" / "scalers_builder.go"
    trimmed, count = re.subn(
        r"switch triggerType \{.*?(?=\t// TRIGGERS-END)", _TRIGGERS, builder.read_text(), flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit("scalers_builder.go has another form in this release")
    builder.write_text(trimmed)


if __name__ == "__main__":
    sys.exit(main())
