"""The methods of the study by name: ways to turn the points of a task into rows."""

from tilewise.measure.methods.accuracy import Accuracy
from tilewise.measure.methods.bandwidth import Bandwidth
from tilewise.measure.methods.base import Method
from tilewise.measure.methods.batches import Batches
from tilewise.measure.methods.calls import Calls
from tilewise.measure.methods.cold_start import ColdStart
from tilewise.measure.methods.energy import Energy
from tilewise.measure.methods.grading import Grading
from tilewise.measure.methods.launch_limits import LaunchLimits
from tilewise.measure.methods.maximum_size import MaximumSize
from tilewise.measure.methods.overhead import Overhead
from tilewise.measure.methods.sizes import Sizes
from tilewise.measure.methods.sweep import Sweep
from tilewise.measure.methods.tune import Tune

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Sweep(),
        Tune(),
        MaximumSize(),
        ColdStart(),
        LaunchLimits(),
        Bandwidth(),
        Overhead(),
        Accuracy(),
        Energy(),
        Sizes(),
        Grading(),
        Calls(),
        Batches(),
    )
}
