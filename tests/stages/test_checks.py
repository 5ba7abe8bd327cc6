"""Each check refuses what would fail later, says what to do, and lets everything else through."""

import math
import re
from dataclasses import dataclass, replace

import pytest
from torch import nn

from fedlib.adapt.atp import ATP
from fedlib.adapt.bbse import BBSE
from fedlib.adapt.btfl import BTFL
from fedlib.adapt.em import EM
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_plus import FedTHEPlus
from fedlib.adapt.fedtta import FedTTAPlus
from fedlib.adapt.surgical import Surgical
from fedlib.adapt.tent import Tent
from fedlib.adapt.ttt import TTT
from fedlib.adapt.whole_client import TentAll
from fedlib.core import RECEIVED, Local, Recipe, Schedule
from fedlib.experiment import run
from fedlib.models import Net
from fedlib.papers.upfl import recipes as upfl
from fedlib.personalize.btfl import BTFLPersonal
from fedlib.personalize.confusion import Confusion
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.fisher import WithFisher
from fedlib.personalize.head import PersonalHead
from fedlib.personalize.select import Selected
from fedlib.personalize.transfer import Transfer
from fedlib.personalize.ttt import JointRotation
from fedlib.setting import Request, Setting
from fedlib.stages.checks import NotKept, check_clients, check_kept, check_needs, check_network, check_recipe, check_rounds
from fedlib.train.alone import Alone
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedbn import FedBN
from fedlib.train.fedtta import FedTTA
from tests import tiny

BENCHMARK = tiny.Protocol(target=1).build(0)
PLAIN = {"FedAvg": Recipe(FedAvg())}


def spoilt(k, **fields):
    """The benchmark, three sources and a target, with other ``fields`` of its client k."""
    clients = [replace(client, **fields) if client.id == k else client for client in BENCHMARK.clients]
    return replace(BENCHMARK, clients=tuple(clients))


def without_images(k, column):
    return spoilt(k, tests=BENCHMARK.clients[k].tests | {column: (tiny.samples(4), tiny.samples(0))})


def test_sound_clients_pass():
    check_clients(BENCHMARK, BENCHMARK.columns)
    check_clients(BENCHMARK, ())


def test_samples_have_to_fit():
    whole = BENCHMARK.clients[0].train
    for samples, message in (
        (replace(whole, labels=whole.labels.int()), r"client 0, train: .* and labels int64 \[n\], got .* torch.int32"),
        (replace(whole, images=whole.images[..., 1:]), r"client 0, train: images must be \[n, .*, got"),
        (replace(whole, labels=whole.labels + BENCHMARK.n_classes), r"client 0, train: labels must be in 0\.\."),
        (replace(whole, images=whole.images / 255), r"client 0, train: images must be uint8 in 0\.\.255, got torch.float32: scale them"),
        (replace(whole, images=whole.images > 9), r"client 0, train: images must be uint8 .*, got torch.bool"),
    ):
        with pytest.raises(ValueError, match=message):
            check_clients(spoilt(0, train=samples))
    with pytest.raises(ValueError, match=r"client 0, original: a test is a tuple of draws, got Samples; write \(samples,\)"):
        check_clients(spoilt(0, tests={"original": whole}))
    with pytest.raises(ValueError, match="several clients have the id 1; give each its own"):
        check_clients(spoilt(0, id=1))


def test_somebody_has_to_train():
    targets = replace(BENCHMARK, clients=tuple(replace(client, source=False) for client in BENCHMARK.clients))
    with pytest.raises(ValueError, match="noise: none of 4 clients takes part in training; let some be sources"):
        check_clients(targets, ["original"])


def test_a_source_without_training_images_is_named_and_a_target_passes():
    with pytest.raises(ValueError, match="client 2 has no training images: use fewer clients, a larger alpha or a larger data set"):
        check_clients(spoilt(2, train=tiny.samples(0)), ["original"])
    check_clients(spoilt(3, train=tiny.samples(0)), ["original"])


def test_an_unknown_column_suggests_the_closest():
    with pytest.raises(ValueError, match=r"unknown test column 'orginal'\. Did you mean 'original'\? Valid: 'original', 'corrupted'"):
        check_clients(BENCHMARK, ["corrupted", "orginal"])


@pytest.mark.parametrize("k", [1, 3])
def test_an_empty_draw_of_a_column_is_named_where_that_column_is_asked_for(k):
    benchmark = without_images(k, "corrupted")
    with pytest.raises(ValueError, match=f"client {k} has no images in its test 'corrupted': .*or leave it out"):
        check_clients(benchmark, ["original", "corrupted"])
    check_clients(benchmark, ["original"])


def test_a_column_of_one_client_only_passes():
    late = spoilt(3, tests={"late": (tiny.samples(2),)})
    check_clients(late, ["original", "late"])


def test_rounds_of_the_schedule_pass():
    check_rounds([1, 2, 3, 4, 5], Schedule(rounds=4))
    check_rounds([1, 4, 6], Schedule(rounds=5, save_every=3))


def test_a_round_that_is_asked_for_twice_is_refused():
    four = Setting("here", tiny.Protocol(target=1), WithBatchNorm, Schedule(rounds=4))
    with pytest.raises(ValueError, match="rounds are asked for twice: 4, 4, where RECEIVED is 4"):
        run([four], PLAIN, [0], request=Request(rounds=(RECEIVED, 4)), cache=None)


@pytest.mark.parametrize("t", [0, 6])
def test_a_round_outside_the_schedule_is_refused(t):
    with pytest.raises(ValueError, match=rf"round {t} is outside 1\.\.5, the states of a training of 4 rounds"):
        check_rounds([1, t], Schedule(rounds=4))


@pytest.mark.parametrize("t", [2, 3, 5])
def test_a_round_that_is_not_kept_is_refused(t):
    with pytest.raises(ValueError, match=rf"round {t} is not kept with save_every=3: evaluate at 1 \+ a multiple of it, or at 6"):
        check_rounds([1, t], Schedule(rounds=5, save_every=3))


PERSISTENT = {"head": Recipe(FedAvg(), PersonalHead())}


def test_a_persistent_part_needs_every_round():
    for t in (4, 5):
        with pytest.raises(ValueError, match="head: PersonalHead is trained through all rounds, of which save_every=3 skips some: take 1"):
            check_kept([1, t], Schedule(rounds=4, save_every=3), PLAIN | PERSISTENT)
    check_kept([1], Schedule(rounds=4, save_every=3), PERSISTENT)
    check_kept([4, 5], Schedule(rounds=4, save_every=3), PLAIN)
    check_kept([1, 2, 5], Schedule(rounds=4), PERSISTENT)
    again = Setting("here", tiny.Protocol(target=1), WithBatchNorm, Schedule(rounds=4, save_every=3))
    with pytest.raises(ValueError, match="save_every=3 skips some"):
        run([again], PERSISTENT, [0], request=Request(rounds=(4,)), cache=None)


def test_who_is_not_sampled_needs_the_round_before():
    sampled = Schedule(rounds=4, save_every=3, participation=0.5)
    with pytest.raises(NotKept, match="save_every=3 skips the earlier models of the clients that a round does not sample: take 1"):
        check_kept([4], sampled, PLAIN, 3)
    check_kept([1, 5], sampled, PLAIN, 3)
    check_kept([2, 4], replace(sampled, save_every=1), PLAIN, 3)
    # All are sampled; each keeps its own; nobody knows yet how many there are.
    check_kept([4], replace(sampled, participation=0.95), PLAIN, 10)
    check_kept([4], sampled, {"alone": Recipe(Alone())}, 3)
    check_kept([4], sampled, PLAIN)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Recipe(FedAvg(), None, EM(iterations=-1)), "iterations of EM must be at least 0, got -1"),
        (Recipe(FedAvg(), None, ATP(batch_size=0)), "batch_size of ATP must be at least 1, got 0"),
        (Recipe(FedAvg(), None, Selected((Tent(), Tent(lr=math.inf)))), "lr of Tent must be above 0 and finite, got inf"),
        (Recipe(FedAvg(lr=0.0)), "lr of FedAvg must be above 0 and finite, got 0.0"),
        (Recipe(FedAvg(), Transfer(tune_epochs=-1)), "tune_epochs of Transfer must be at least 0, got -1"),
        (Recipe(FedAvg(), None, FedTHEPlus(ensemble=FedTHE(lr=math.nan))), "lr of FedTHE must be above 0 and finite, got nan"),
        (Recipe(FedAvg(), None, EM(iterations=math.nan)), "iterations of EM must be a number, got nan"),
        (Recipe(FedAvg(), BTFLPersonal(levels=0)), "levels of BTFLPersonal must be at least 2, got 0"),
    ],
)
def test_a_hyperparameter_out_of_range_is_named_before_training(recipe, message):
    with pytest.raises(ValueError, match=f"method 'mine': {message}"):
        check_recipe("mine", recipe)


@dataclass(frozen=True)
class Whole:
    """A user's adapter, in whose words a batch of 0 is the whole stream."""

    batch_size: int = 0
    steps: int = -1
    candidates: int = 5

    def run(self, task, state, personal, stream):
        return task.frozen(state, stream)[1]


def test_what_the_names_of_a_users_fields_mean_is_not_known():
    check_recipe("mine", Recipe(FedAvg(), None, Whole()))
    check_recipe("patient", Recipe(FedTTA(), None, FedTTAPlus(patience=math.inf)))


def test_none_is_no_adaptation():
    with pytest.raises(ValueError, match=r"method 'mine': no adaptation is fedlib.NoAdapt\(\), not None"):
        check_recipe("mine", Recipe(FedAvg(), None, None))


def test_a_stage_may_refuse_a_network_itself():
    with pytest.raises(ValueError, match="unknown block 'blok'"):
        check_network(tiny.task("convolution"), BENCHMARK, PLAIN | {"surgical": Recipe(FedAvg(), None, Surgical("blok"))})
    check_network(tiny.task("convolution"), BENCHMARK, PLAIN | {"surgical": Recipe(FedAvg(), None, Surgical("head"))})


NEEDY = {
    "training": (Recipe(FedBN()), "FedBN"),
    "adapter": (Recipe(FedAvg(), None, Tent()), "Tent"),
    "candidate": (Recipe(FedAvg(), None, Selected((FedTHE(), Tent()))), "Tent"),
    "personal part": (Recipe(FedAvg(), WithFisher(FineTune())), "WithFisher"),
}


@pytest.mark.parametrize("where", NEEDY)
def test_what_needs_batch_norm_is_named_on_a_network_without(where):
    recipe, name = NEEDY[where]
    with pytest.raises(ValueError, match=rf"needy: {name} needs batch norm, and Net has none: choose a network that has it"):
        check_network(tiny.task("convolution"), BENCHMARK, PLAIN | {"needy": recipe})
    check_network(tiny.task("batchnorm"), BENCHMARK, PLAIN | {"needy": recipe})


REFUSING = {
    "training": (Recipe(FedTTA()), "FedTTA"),
    "adapter": (Recipe(FedAvg(), None, TentAll()), "TentAll"),
    "candidate": (Recipe(FedAvg(), None, Selected((FedTHE(), FedTTAPlus()))), "FedTTAPlus"),
}


@pytest.mark.parametrize("where", REFUSING)
def test_what_refuses_batch_norm_is_named_on_a_network_with_it(where):
    recipe, name = REFUSING[where]
    with pytest.raises(ValueError, match=rf"odd: {name} runs without batch norm only, and Net has it: choose one without"):
        check_network(tiny.task("batchnorm"), BENCHMARK, PLAIN | {"odd": recipe})
    check_network(tiny.task("convolution"), BENCHMARK, PLAIN | {"odd": recipe})


def test_what_turns_images_is_named_where_they_are_not_square():
    turning = PLAIN | {"turning": Recipe(FedAvg(), JointRotation(), TTT())}
    wide = replace(BENCHMARK, in_shape=(1, 6, 8))
    with pytest.raises(ValueError, match="turning turns images by 90 degrees, and these are 6 x 8: leave it out, or cut them to squares"):
        check_network(tiny.task("convolution"), wide, turning)
    check_network(tiny.task("convolution"), BENCHMARK, turning)
    check_network(tiny.task("convolution"), wide, PLAIN)


def test_what_needs_features_of_at_least_zero_is_named_on_a_network_with_others():
    coded = PLAIN | {"coded": Recipe(FedAvg(), BTFLPersonal(), BTFL())}
    with pytest.raises(ValueError, match="coded: features must not be negative, as Net's are: put a ReLU between extractor and head"):
        check_network(tiny.task("convolution"), BENCHMARK, coded)
    task = tiny.task("convolution")
    check_network(replace(task, model=Net(nn.Sequential(*task.model.extractor[:-1], nn.ReLU()), task.model.head)), BENCHMARK, coded)
    check_network(task, BENCHMARK, PLAIN)


class WithBatchNorm(Net):
    def __init__(self, in_shape, n_classes):
        layers = [nn.Conv2d(in_shape[0], 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5, bias=False), nn.ReLU()]
        super().__init__(nn.Sequential(*layers), nn.Linear(5, n_classes, bias=False))


REFUSED = {"FedADG", "ODPFL-HN", "Tent", "FedTTA", "FedTTA-Prox", "FedTTA++"}
RECIPES = upfl.recipes(widths=(8, 4))


@pytest.mark.parametrize("name", RECIPES)
def test_a_method_of_upfl_is_refused_before_training_or_runs_on_batch_norm(name, monkeypatch):
    setting = Setting("here", tiny.Protocol(target=1), WithBatchNorm, Schedule(rounds=1, local=Local(batch_size=4, epochs=1)))
    if name not in REFUSED:
        assert run([setting], {name: RECIPES[name]}, [0], cache=None)["accuracy"].between(0, 100).all()
        return
    monkeypatch.setattr("fedlib.federation.run", None)
    with pytest.raises(ValueError, match=rf"{re.escape(name)}: \w+ runs without batch norm only, and WithBatchNorm has it"):
        run([setting], {name: RECIPES[name]}, [0], cache=None)


def test_what_does_without_batch_norm_runs_on_any_network():
    for kind in ("plain", "convolution", "batchnorm"):
        check_network(tiny.task(kind), BENCHMARK, PLAIN | {"FedTHE": Recipe(FedAvg(), PersonalHead(), FedTHE())})


def flat_batch_norm(**local):
    """A network whose batch norm acts on single features, which has no variance in a batch of one image."""
    task = tiny.task(local=Local(**local))
    layers = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.BatchNorm1d(5))
    return replace(task, model=Net(layers, nn.Linear(5, tiny.CLASSES)))


def test_a_batch_of_one_image_is_refused_where_batch_norm_is_undefined():
    # The sources hold 9, 5 and 14 images.
    words = r"client 0 has 9 training images, so that batches of 4 leave one image alone.*another batch_size, or smallest=2"
    with pytest.raises(ValueError, match=words):
        check_network(flat_batch_norm(batch_size=4), BENCHMARK, PLAIN)
    with pytest.raises(ValueError, match="client 2 has 14 training images, so that batches of 13 leave one"):
        check_network(flat_batch_norm(batch_size=13), BENCHMARK, PLAIN)
    for smallest in (1, 2):
        with pytest.raises(ValueError, match=r"batches of 1 leave one image alone.*: take a larger one$"):
            check_network(flat_batch_norm(batch_size=1, smallest=smallest), BENCHMARK, PLAIN)


@dataclass(frozen=True)
class Quiet:
    """A user's personal part, which says nothing of its needs."""

    persistent: bool = False

    def init(self, task, clients):
        return {}

    fit = init


def test_who_needs_labels_that_nobody_brings_is_named_before_training():
    new = replace(BENCHMARK.clients[0], id=9, source=False, train=BENCHMARK.clients[0].train.at([]))
    bare = replace(BENCHMARK, clients=(*(replace(c, val=c.val.at([]), tests={}) for c in BENCHMARK.clients), new))
    for recipe, words in {
        Recipe(FedAvg(), FineTune()): "mine needs the client's own labelled images, and the tested clients bring none: leave it out",
        Recipe(FedAvg(), Confusion(), BBSE()): "mine needs a labelled validation part, and the training clients have none",
    }.items():
        with pytest.raises(ValueError, match=words):
            check_needs(bare, {"mine": recipe})
        check_needs(BENCHMARK, {"mine": recipe})
    check_needs(bare, PLAIN | {"quiet": Recipe(FedAvg(), Quiet())})


def test_other_batches_pass():
    for batch_size in (3, 5, 6, 7):
        check_network(flat_batch_norm(batch_size=batch_size), BENCHMARK, PLAIN)
    check_network(flat_batch_norm(batch_size=4, smallest=2), BENCHMARK, PLAIN)
    # Convolutions have a variance within one image.
    check_network(tiny.task("batchnorm", local=Local(batch_size=4)), BENCHMARK, PLAIN)


def test_batch_norm_over_maps_of_one_pixel_needs_two_images_as_well():
    layers = nn.Sequential(nn.Conv2d(1, 5, 6), nn.BatchNorm2d(5), nn.Flatten())
    task = replace(tiny.task(local=Local(batch_size=4)), model=Net(layers, nn.Linear(5, tiny.CLASSES)))
    with pytest.raises(ValueError, match="client 0 has 9 training images, so that batches of 4 leave one image alone"):
        check_network(task, BENCHMARK, PLAIN)


def test_a_client_of_one_image_is_refused_though_short_batches_are_skipped():
    """Its only batch is never skipped; a target's is not trained on."""
    task = flat_batch_norm(batch_size=4, smallest=2)
    with pytest.raises(ValueError, match=r"client 1 has 1 training images.*: use fewer clients"):
        check_network(task, spoilt(1, train=tiny.samples(1)), PLAIN)
    check_network(task, spoilt(3, train=tiny.samples(1)), PLAIN)
