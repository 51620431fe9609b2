// Package document reads configuration that people write, in YAML or JSON, so that every
// mistake is reported with its file, line and path and, where there is one, a suggestion.
//
// [Parse] splits a file into documents; [ParseJSON] reads one JSON text of gRPC's or
// protobuf's, which is more lenient. Either gives a [Value], which the caller walks down by
// the schema that it has in mind: [Value.Object] says which fields there are, [Value.Text]
// that a string is expected, and so on. What does not fit is put on the [Faults], and the
// walk goes on, so that one run finds all faults.
//
// The package is not a decoder into Go structs: those lose lines and paths, and stop at the
// first mismatch. It has no place on the path of RPCs or updates, and knows nothing of what
// the values mean.
//
// Parse accepts less than YAML, on purpose: anchors, aliases, merge keys and tags are
// faults, as is a key that occurs twice. So a document is as large as it looks. It may have
// 100 levels, and a file [MaxSize] bytes.
package document
