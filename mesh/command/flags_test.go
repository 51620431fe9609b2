package command

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// root is the folder of the repository.
const root = "../.."

// flagsOf returns the flags of each command, by its name.
func flagsOf() map[string]map[string]bool {
	all := make(map[string]map[string]bool)
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		names := map[string]bool{"help": true}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
		all[cmd.Name()] = names
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	command := newRoot()
	command.InitDefaultVersionFlag()
	add(command)
	return all
}

// foreign are the flags of other programs that texts name, by the page; etcd's are everywhere.
var foreign = map[string][]string{
	"":                        {"max-txn-ops", "quota-backend-bytes", "max-request-bytes"},
	"docs/tasks/debugging.md": {"csds"},
	"docs/tasks/explain.md":   {"csds"},
	"docs/tasks/store.md":     {"prefix"}, // of etcdctl
	// kubectl's, and those of dynxds-kubernetes, whose tests look whether it has them.
	"docs/tasks/kubernetes.md": {"from-file", "cluster-domain", "audience", "anonymous", "lease-namespace", "namespace", "start-timeout", "token-reviews", "as", "token", "trust-domain"},
}

var (
	flagIn = regexp.MustCompile("(?:^|[\\s(\"'`/|{\\[])--([a-z][a-z0-9-]*[a-z0-9])")
	// callIn is a call of the command with what follows, to the end of the code or of the line.
	callIn = regexp.MustCompile("dynxds ([a-z]+)((?: [^`|&>;\n]*)?)")
)

// checkFlags reports flags in a text that no command has, or not the one that is called with it.
func checkFlags(t *testing.T, at, text string, all map[string]map[string]bool, others []string) (found int) {
	known := func(of map[string]bool, flag string) bool {
		return of[flag] || slices.Contains(foreign[""], flag) || slices.Contains(others, flag)
	}
	some := make(map[string]bool)
	for _, flags := range all {
		for flag := range flags {
			some[flag] = true
		}
	}
	for _, match := range flagIn.FindAllStringSubmatch(text, -1) {
		found++
		if !known(some, match[1]) {
			t.Errorf("%s: no command has a flag --%s", at, match[1])
		}
	}
	for _, call := range callIn.FindAllStringSubmatch(text, -1) {
		flags := all[call[1]]
		for _, match := range flagIn.FindAllStringSubmatch(call[2], -1) {
			if flags != nil && !known(flags, match[1]) {
				t.Errorf("%s: dynxds %s has no flag --%s", at, call[1], match[1])
			}
		}
	}
	return found
}

// Each flag that an error, a help text or a line of a log names is one of the command, and so is each in the docs.
func TestNamedFlagsExist(t *testing.T) {
	t.Parallel()
	all := flagsOf()
	found := 0
	xdstest.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != root || entry.Name() == "testdata" || name == "bin" ||
			name == "tools" || name == "interop" || name == "examples/otel" || name == "mesh/etcdtest" || name == "mesh/kubernetes"): // with flags of their own
			return fs.SkipDir
		case entry.IsDir():
		case filepath.Ext(path) == ".md" && name != "CHANGELOG.md", // which has those of the past
			filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".pb.go") && !strings.HasPrefix(name, "examples"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found += checkFlags(t, name, string(text), all, foreign[filepath.ToSlash(name)])
		}
		return nil
	}))
	if found < 300 {
		t.Errorf("only %d flags were found: does the test see them?", found)
	}
}
