// Package document reads configuration that people write, in YAML or JSON, and reports every
// mistake with its file, line and path and, where possible, a suggestion.
//
// [Parse] splits a file into documents, each a [Value], which the caller walks according to its
// schema: [Value.Object] declares the fields, [Value.Text] expects a string, and so on. A mismatch
// is added to the [Faults] and the walk goes on, so that one run finds all errors.
//
// The package is not a decoder into Go structs: those lose lines and paths, and stop at the
// first mismatch. It has no place on the path of RPCs or updates, and knows nothing of what
// the values mean.
//
// Parse accepts less than YAML, on purpose: anchors, aliases, merge keys and tags are
// errors, as is a key that occurs twice. So a document is as large as it looks. It may be
// nested 100 levels deep, and a file may have [MaxSize] bytes. JSON alone, as gRPC's bootstrap, is
// read by package jsondoc.
package document
