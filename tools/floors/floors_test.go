package main

import (
	"strings"
	"testing"
)

// TestTheModuleKeepsTheRules holds the code against the table.
func TestTheModuleKeepsTheRules(t *testing.T) {
	packages, err := imports("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range violations(rooms, packages) {
		t.Error(fault)
	}
}

// TestThePageShowsTheTable holds the architecture page against the table.
func TestThePageShowsTheTable(t *testing.T) {
	if err := writeTable("../../docs/internals/architecture.md", true); err != nil {
		t.Error(err)
	}
}

func TestEveryRoomHasAPackage(t *testing.T) {
	packages, err := imports("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms {
		for _, folder := range r.folders {
			if folder == "" {
				continue
			}
			found := false
			for path := range packages {
				found = found || matches(module+"/"+folder+"/...", path)
			}
			if !found {
				t.Errorf("the table has a room %s, and the module no package in it", folder)
			}
		}
	}
}

func TestViolations(t *testing.T) {
	house := []room{
		{floor: 0, folders: []string{"ground"}, never: "print", imports: []string{"fmt", "example.com/printer/..."}},
		{floor: 1, folders: []string{"left", "left2"}},
		{floor: 1, folders: []string{"right"}},
		{floor: 1, folders: []string{"porch"}, beside: []string{"left"}},
		{floor: 2, folders: []string{"left/attic"}, never: "know right", only: []string{"left"}},
		{floor: 3, folders: []string{""}},
	}
	for _, test := range []struct{ name, from, to, want string }{
		{"down", "/left", module + "/ground", ""},
		{"down from the root", "", module + "/left", ""},
		{"within the room", "/left/inner", module + "/left", ""},
		{"within a room of two folders", "/left", module + "/left2", ""},
		{"another module", "/left", "example.com/printer", ""},
		{"up", "/ground", module + "/left", "imports point down"},
		{"sideways", "/left", module + "/right", "imports point down"},
		{"sideways where it may", "/porch", module + "/left2", ""},
		{"sideways the other way round", "/left", module + "/porch", "imports point down"},
		{"to the root", "/left", module, "imports point down"},
		{"what it must never import", "/ground", "fmt", "must never print"},
		{"below what it must never import", "/ground", "example.com/printer/ink", "must never print"},
		{"only what it may", "/left/attic", module + "/left", ""},
		{"not what it may", "/left/attic", module + "/right", "must never know right"},
		{"a folder that has no room", "/cellar", module + "/left", "no room for"},
		{"from a room to a folder without", "/left", module + "/cellar", "no room"},
		{"a name that only begins alike", "/left", module + "/grounds", "no room"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := strings.Join(violations(house, map[string][]string{module + test.from: {test.to}}), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("violations of %q importing %q: %q, want %q", test.from, test.to, got, test.want)
			}
		})
	}
}
