# Everything a newcomer runs. Needs make and Python 3.11 or newer; all else goes into .venv.

PYTHON ?= python3
VENV = .venv
JOBS ?= 2
SAMPLE ?= 1
REST ?= 1
SECONDS ?= 300
DEMO_MODELS = data squeezenet11

# Models on which every pass is validated: the others take NumPy too long.
CHECKED = (mnist8 or squeezenet11 or silero or mtcnn or espcn or minilm or resnet50)

BIN = $(VENV)/bin
TIMED = $(PYTHON) tools/timed.py .venv/times

# Tests may change neither the sources nor what is installed.
APART = $(PYTHON) tools/unchanged.py . --
PYTEST = $(APART) $(BIN)/python -m pytest -n $(JOBS)

# Test files that hold a test with a mark: pytest would import all others, to leave them out.
marked = $$(grep -rl --include='test_*.py' 'mark.$(1)' tests)

help:
	@echo "make demo          fetch a few models, compile them and show what they do"
	@echo "make test          fetch the models and run the tests"
	@echo "make test-offline  run the tests that need no models"
	@echo "make test-few      run two cases of each test that needs no models, or CASES=1; CASES=0.5"
	@echo "                   runs one case of every other test"
	@echo "make test-changed  run for two minutes the tests that reach what differs from HEAD, or from"
	@echo "                   the merge base if nothing does; BASE=REVISION"
	@echo "make test-record   run make test and record what each test executes, for test-changed"
	@echo "make test-all      make test, then make test-rest"
	@echo "make test-rest     ruff, mypy, import-linter, slow tests, models with every pass checked;"
	@echo "                   REST=0.5 runs half of these tests"
	@echo "make test-cross    run bundles on other machines' emulators; .ci/run installs these;"
	@echo "                   CASES=2 runs at most two cases of each test that is not slow"
	@echo "make test-kernels  run what is for OpenCL on the runtimes that it installs into .venv/opencl"
	@echo "                   and on PoCL, and the kernels of all examples there and as C, by gcc;"
	@echo "                   SAMPLE=0.1 runs a tenth of these kernels"
	@echo "make test-oclgrind run a tenth of operators and of onnx's tests of nodes as grids under"
	@echo "                   Oclgrind, which tells of races and accesses out of bounds"
	@echo "make test-torch    run the tests that need PyTorch, in .venv/torch; SAMPLE=0.1 a tenth of"
	@echo "                   the models, CASES=3 at most three cases of each test"
	@echo "make test-stablehlo  run the tests that need JAX, in .venv/stablehlo;"
	@echo "                   REST=0 runs a sample of each, always the same"
	@echo "make test-tflite   run the tests that need LiteRT, in .venv/tflite; SAMPLE=0.1 compiles a"
	@echo "                   tenth of the models of one operator, and evaluates the others; REST=0"
	@echo "                   runs a sample of the nets"
	@echo "make test-guarded  run all tests with every operand between unmapped pages"
	@echo "make test-flaky    run the tests three times, in random order and under other conditions, and"
	@echo "                   name those whose outcome differs"
	@echo "make test-pythons  make test on every CPython from 3.11 on that is here, each in an"
	@echo "                   environment of its own; PYTHONS=\"~/3.13/bin/python\" names more"
	@echo "make conformance   run the tests that onnx brings and write docs/conformance.md"
	@echo "make conformance-torch  run PyTorch's samples of its operators through us, the same way"
	@echo "make conformance-tflite  run models of one operator beside LiteRT, the same way"
	@echo "make conformance-stablehlo  run StableHLO's suites and programs of JAX, the same way"
	@echo "make conformance-opencl  run onnx's tests of nodes through OpenCL, on each runtime"
	@echo "make matrix        try every feature on models from every source, write docs/matrix.md"
	@echo "make cliffs        time CASES=3000 random models of one operator beside other runtimes, write"
	@echo "                   docs/cliffs.md; goes on where it stopped"
	@echo "make fuzz          try random models for SECONDS, and go on where it stopped"
	@echo "make bench         install other runtimes, measure beside them, write bench/RESULTS.md"
	@echo "make release       build and check the wheel and the sdist in .release; uploads nothing"
	@echo "make docs          build the pages and the API reference as a site, .docs/site/index.html;"
	@echo "                   warnings and broken links are errors"
	@echo "make docs/operators.md  write a page that describes all operators"
	@echo "make models        fetch the models and data into .models"
	@echo "make clean         remove .venv, .models, .bench, .docs, .release and what tools leave"
	@echo "PYTHON=python3.13 chooses the interpreter of a new .venv, VENV=.venv/3.13 another place"
	@echo "for it, JOBS=4 the number of test processes."

demo: $(VENV)/demo.stamp
	@rm -f .venv/times
	@$(BIN)/python tools/fetch_models.py $(DEMO_MODELS)
	@$(BIN)/python tools/demo.py

docs/operators.md: $(VENV)/dev.stamp
	@$(BIN)/python tools/make_docs.py

docs: .venv/docs/docs.stamp docs/operators.md
	@$(TIMED) docs .venv/docs/bin/python -B -m sphinx -W --keep-going -q -d .docs/doctrees docs .docs/site; \
	status=$$?; $(TIMED); exit $$status

release: .venv/release/release.stamp
	@.venv/release/bin/python tools/release.py

models: $(VENV)/dev.stamp
	@$(TIMED) models $(BIN)/python tools/fetch_models.py; \
	status=$$?; $(TIMED); exit $$status

test: $(VENV)/dev.stamp
	@$(TIMED) models $(BIN)/python tools/fetch_models.py && \
	$(TIMED) tests $(PYTEST) -m "not slow and not cross and not opencl and not torch"; \
	status=$$?; $(TIMED); exit $$status

test-offline: $(VENV)/dev.stamp
	@$(TIMED) tests $(PYTEST) -m "not models and not slow and not cross and not opencl and not torch"; \
	status=$$?; $(TIMED); exit $$status

test-few: $(VENV)/dev.stamp
	@ALPENGLOW_CHECK=0 $(TIMED) tests $(PYTEST) -m "not models and not slow and not cross and not opencl and not torch" \
		--cases $(or $(CASES),2); \
	status=$$?; $(TIMED); exit $$status

# The record lies in .venv, so this runs without $(APART).
test-record: $(VENV)/dev.stamp
	@$(TIMED) models $(BIN)/python tools/fetch_models.py && \
	$(TIMED) record $(BIN)/python tools/record.py -- -n $(JOBS) \
		$(if $(CASES),--cases $(CASES)); \
	status=$$?; $(TIMED); exit $$status

test-changed: $(VENV)/dev.stamp
	@$(BIN)/python tools/changed.py --jobs $(JOBS) $(if $(BASE),--base $(BASE))

test-all:
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

# mypy takes one core for a minute and a half, so tests run beside it; it writes no cache.
test-rest: $(VENV)/dev.stamp
	@$(TIMED) models $(BIN)/python tools/fetch_models.py && \
	$(TIMED) ruff $(BIN)/ruff check --no-cache . && \
	$(TIMED) lint-imports $(BIN)/lint-imports --no-cache && { \
	$(TIMED) mypy $(BIN)/mypy --cache-dir=/dev/null & types=$$!; \
	$(TIMED) slow $(PYTEST) -m "slow and not cross and not guarded and not opencl and not torch" \
		--rest $(REST) && \
	ALPENGLOW_CHECK=1 $(TIMED) checked-models $(PYTEST) \
		tests/networks/test_models.py -m "not slow or rest" -k "compiled and $(CHECKED)" \
		--rest $(REST); \
	status=$$?; wait $$types && [ $$status -eq 0 ]; }; \
	status=$$?; $(TIMED); exit $$status

test-cross: $(VENV)/dev.stamp
	@$(TIMED) models $(BIN)/python tools/fetch_models.py && \
	$(TIMED) cross $(PYTEST) -m "cross $(if $(CASES),and not slow)" \
		$(call marked,cross) $(if $(CASES),--cases $(CASES)); \
	status=$$?; $(TIMED); exit $$status

test-kernels: .venv/opencl/kernels.stamp
	@CL_CONFIG_CPU_VECTORIZER_MODE=1 $(TIMED) kernels $(APART) .venv/opencl/bin/python -m pytest -n $(JOBS) -m opencl \
		$(call marked,opencl) --sample $(SAMPLE); \
	status=$$?; $(TIMED); exit $$status

test-torch: .venv/torch/torch.stamp
	@$(TIMED) models .venv/torch/bin/python tools/fetch_models.py data mnist8 && \
	$(TIMED) torch $(APART) .venv/torch/bin/python -m pytest -n $(JOBS) tests/pytorch \
		--sample $(SAMPLE) $(if $(CASES),--cases $(CASES)); \
	status=$$?; $(TIMED); exit $$status

test-tflite: .venv/tflite/tflite.stamp
	@$(TIMED) models .venv/tflite/bin/python tools/fetch_models.py tflite && \
	$(TIMED) tflite $(APART) .venv/tflite/bin/python -m pytest -n $(JOBS) \
		tests/frontends/tflite --sample $(SAMPLE) --rest $(REST); \
	status=$$?; $(TIMED); exit $$status

test-stablehlo: .venv/stablehlo/stablehlo.stamp
	@ALPENGLOW_CHECK=0 $(TIMED) stablehlo $(APART) .venv/stablehlo/bin/python -m pytest -n $(JOBS) \
		tests/frontends/stablehlo/jaxlib --rest $(REST); \
	status=$$?; $(TIMED); exit $$status

conformance-stablehlo: .venv/stablehlo/stablehlo.stamp
	@$(TIMED) conformance-stablehlo .venv/stablehlo/bin/python -B tools/conformance_stablehlo.py \
		--jobs $(JOBS); \
	status=$$?; $(TIMED); exit $$status

# JAX comes from its own environment, behind PyTorch's.
matrix: .venv/torch/torch.stamp .venv/stablehlo/stablehlo.stamp
	@$(BIN)/python tools/fetch_models.py && \
	$(BIN)/python tools/zoo.py fetch --only mtcnn_keras_rnet && \
	$(BIN)/python tools/zoo.py fetch --only oww_hey_mycroft && \
	PYTHONPATH=$$(.venv/stablehlo/bin/python -c \
		"import sysconfig; print(sysconfig.get_path('purelib'))") \
		.venv/torch/bin/python tools/matrix.py

cliffs: .venv/torch/torch.stamp
	@$(TIMED) cliffs .venv/torch/bin/python tools/cliffs.py --cases $(or $(CASES),3000) && \
	.venv/torch/bin/python tools/cliffs.py --report; \
	status=$$?; $(TIMED); exit $$status

conformance-tflite: .venv/tflite/tflite.stamp
	@$(TIMED) conformance-tflite .venv/tflite/bin/python -B tools/conformance_tflite.py \
		--jobs $(JOBS); \
	status=$$?; $(TIMED); exit $$status

test-guarded: $(VENV)/dev.stamp
	@$(TIMED) sweep $(PYTEST) -m guarded $(call marked,guarded) && \
	ALPENGLOW_CHECK=0 PYTHONPATH=tests $(TIMED) guarded $(PYTEST) -p fuzz.everywhere \
		-m "not models and (not slow or rest) and not cross and not opencl and not torch"; \
	status=$$?; $(TIMED); exit $$status

test-flaky: $(VENV)/dev.stamp
	@$(TIMED) models $(BIN)/python tools/fetch_models.py && \
	$(TIMED) flaky $(BIN)/python tools/flaky.py; \
	status=$$?; $(TIMED); exit $$status

test-pythons:
	@$(PYTHON) tools/pythons.py each test

conformance: $(VENV)/dev.stamp
	@$(TIMED) conformance $(BIN)/python tools/conformance.py --jobs $(JOBS); \
	status=$$?; $(TIMED); exit $$status

conformance-opencl: .venv/opencl/kernels.stamp
	@$(TIMED) conformance-opencl .venv/opencl/bin/python tools/conformance_opencl.py \
		--jobs $(JOBS); \
	status=$$?; $(TIMED); exit $$status

test-oclgrind: .venv/opencl/kernels.stamp
	@$(TIMED) oclgrind .venv/opencl/bin/python tools/oclgrind.py; \
	status=$$?; $(TIMED); exit $$status

conformance-torch: .venv/torch/torch.stamp
	@$(TIMED) conformance-torch .venv/torch/bin/python tools/conformance_torch.py --page \
		--jobs $(JOBS); \
	status=$$?; $(TIMED); exit $$status

fuzz: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.fuzz.campaign --seconds $(SECONDS) --workers $(JOBS)

bench: $(VENV)/dev.stamp
	@$(TIMED) models $(BIN)/python tools/fetch_models.py && \
	$(TIMED) bench $(BIN)/python bench/compare.py $(BENCH); \
	status=$$?; $(TIMED); exit $$status

clean:
	rm -rf .venv .models .bench .docs .release .mypy_cache .ruff_cache .pytest_cache \
		.import_linter_cache

$(VENV)/demo.stamp: pyproject.toml
	@$(TIMED) install sh tools/install.sh $(PYTHON) demo $(VENV)

$(VENV)/dev.stamp: pyproject.toml
	@$(TIMED) install sh tools/install.sh $(PYTHON) dev $(VENV)

.venv/docs/docs.stamp: $(VENV)/dev.stamp
	@sh tools/layer.sh $(VENV) .venv/docs
	@$(TIMED) install-docs sh tools/install.sh $(PYTHON) docs .venv/docs

.venv/release/release.stamp:
	@$(PYTHON) -m venv .venv/release
	@.venv/release/bin/python -m pip install --quiet --disable-pip-version-check \
		"build>=1.2,<2" "twine>=6,<7" "check-wheel-contents>=0.6,<1"
	@touch $@

.venv/opencl/kernels.stamp: $(VENV)/dev.stamp
	@sh tools/layer.sh $(VENV) .venv/opencl
	@$(TIMED) install-kernels sh tools/install.sh $(PYTHON) kernels .venv/opencl

.venv/stablehlo/stablehlo.stamp: $(VENV)/dev.stamp tools/install_stablehlo.sh
	@$(TIMED) install-jax sh tools/install_stablehlo.sh $(VENV) .venv/stablehlo

.venv/tflite/tflite.stamp: $(VENV)/dev.stamp tools/install_tflite.sh
	@$(TIMED) install-litert sh tools/install_tflite.sh $(VENV) .venv/tflite

.venv/torch/torch.stamp: $(VENV)/dev.stamp tools/install_torch.sh
	@$(TIMED) install-torch sh tools/install_torch.sh $(VENV) .venv/torch

.PHONY: help demo docs models docs/operators.md test test-offline test-few test-all test-rest \
	test-cross test-guarded test-kernels test-oclgrind test-torch test-tflite test-stablehlo test-pythons test-flaky \
	test-changed test-record conformance conformance-opencl conformance-stablehlo conformance-tflite \
	conformance-torch matrix cliffs \
	fuzz bench release clean
