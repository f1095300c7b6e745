"""Extras: families of operators that few models use, imported when a model asks for one of them.

Each package here is an extra.  Importing it registers its operators and their loop forms.  Its
subpackages hold what other tables need of it, and are imported when one of these lacks a name:

| subpackage               | its modules hold                              | asked by            |
|--------------------------|-----------------------------------------------|---------------------|
| `onnx`                   | converters, and forms of what runs in Python  | `frontends.onnx`    |
| `stablehlo`, `torch`     | converters                                    | `frontends.*.table` |
| `writers`                | writers of ONNX nodes                         | `exporters.onnx`    |

An extra may import all of the package, and nothing else in the package may import an extra:
`base.extensions.bring_extras` is the one way in.
"""
