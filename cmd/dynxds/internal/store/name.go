package store

import (
	"path"
	"strings"
)

// IsName reports whether a key below docs, or a file of a folder, is a document: its extension is .yaml,
// .yml or .json, and no element of its path is empty or starts with a dot.
func IsName(name string) bool {
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || strings.HasPrefix(element, ".") {
			return false
		}
	}
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
