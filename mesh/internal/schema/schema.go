// Package schema has the JSON Schemas of the documents of a folder and of bootstraps, for editors. They accept what the readers accept, and
// refuse what these find unknown, missing or of the wrong kind; of values that depend on each other they do not know. The test asks both
// about mistakes in every place of examples.
package schema

import _ "embed"

// Folder is the schema of a document of a folder.
//
//go:embed folder.json
var Folder string

// Bootstrap is the schema of a client's bootstrap.
//
//go:embed bootstrap.json
var Bootstrap string
