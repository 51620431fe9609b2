package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// violations returns a line for each import that the rooms do not allow, and for each
// package that no room has. packages maps import paths to what they import.
func violations(rooms []room, packages map[string][]string) []string {
	var faults []string
	for _, importer := range slices.Sorted(maps.Keys(packages)) {
		from := roomOf(rooms, importer)
		if from == nil {
			faults = append(faults, fmt.Sprintf("no room for %s: add it to tools/floors/table.go", importer))
			continue
		}
		for _, imported := range packages[importer] {
			if why := from.forbids(rooms, imported); why != "" {
				faults = append(faults, fmt.Sprintf("%s imports %s: %s", importer, imported, why))
			}
		}
	}
	return faults
}

// forbids says why a package of the room must not import a path, or returns "".
func (r *room) forbids(rooms []room, imported string) string {
	if slices.ContainsFunc(r.imports, func(pattern string) bool { return matches(pattern, imported) }) {
		return "must never " + r.never
	}
	if !matches(module+"/...", imported) {
		return ""
	}
	to := roomOf(rooms, imported)
	switch {
	case to == r:
		return ""
	case to == nil:
		return "it has no room"
	case to.floor == r.floor && slices.ContainsFunc(r.beside, func(folder string) bool { return slices.Contains(to.folders, folder) }):
		return ""
	case to.floor >= r.floor:
		return fmt.Sprintf("floor %d imports floor %d; imports point down", r.floor, to.floor)
	case r.only != nil && !slices.ContainsFunc(r.only, func(folder string) bool { return slices.Contains(to.folders, folder) }):
		return "must never " + r.never
	}
	return ""
}

// roomOf returns the room of a package: the one with the longest folder above it, or
// nil. The root's own room has no packages but the root.
func roomOf(rooms []room, path string) *room {
	var best *room
	longest := -1
	for i := range rooms {
		for _, folder := range rooms[i].folders {
			pattern := module
			if folder != "" {
				pattern = module + "/" + folder + "/..."
			}
			if matches(pattern, path) && len(folder) > longest {
				best, longest = &rooms[i], len(folder)
			}
		}
	}
	return best
}

// matches reports whether an import path is the pattern, or, if that ends in "/...",
// the path before it or one below.
func matches(pattern, path string) bool {
	prefix, below := strings.CutSuffix(pattern, "/...")
	return path == prefix || below && strings.HasPrefix(path, prefix+"/")
}
