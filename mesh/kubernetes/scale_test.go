package main

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// The flags that the reference names are flags of a command.
func TestDocumentedFlags(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/tasks/kubernetes.md")
	xdstest.NoError(t, err)
	named := regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(string(text), -1)
	if len(named) < 5 {
		t.Errorf("found %d flags", len(named))
	}
	for _, match := range named {
		if !slices.ContainsFunc(newRoot(nil).Commands(), func(cmd *cobra.Command) bool { return cmd.Flag(match[1]) != nil }) {
			t.Errorf("no command has a flag --%s", match[1])
		}
	}
}
