package bootstrap

import (
	"os"
	"strings"
	"testing"
)

const docPath = "../../docs/reference/bootstrap.md"

// blocks returns the fenced blocks of a language.
func blocks(doc, language string) []string {
	var found []string
	for {
		_, rest, ok := strings.Cut(doc, "\n```"+language+"\n")
		if !ok {
			return found
		}
		block, after, _ := strings.Cut(rest, "\n```")
		found, doc = append(found, block), after
	}
}

// The manual shows a complete bootstrap, a wrong one, and the report it gets.
func TestManual(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	examples, reports := blocks(string(doc), "json"), blocks(string(doc), "text")
	if len(examples) != 2 || len(reports) != 1 {
		t.Fatalf("found %d json and %d text blocks, want 2 and 1", len(examples), len(reports))
	}
	c := mustParse(t, examples[0])
	for _, key := range []string{c.Node.GetId(), c.ServerListenerTemplate, c.Authorities["xds.example.com"].DynamicParameterConstraintsResource} {
		if key == "" {
			t.Errorf("the complete example leaves something out: %+v", c)
		}
	}
	// The program of the manual has no credentials types of its own.
	_, err = Parse("/etc/dynxds/bootstrap.json", []byte(examples[1]))
	got := strings.Replace(err.Error(), channelTypes.types(), "insecure, tls", 1)
	if got != reports[0] {
		t.Errorf("the manual shows\n%s\nand the report is\n%s", reports[0], got)
	}
	for _, feature := range knownFeatures {
		if !strings.Contains(string(doc), "`"+string(feature)+"`") {
			t.Errorf("the manual does not mention the feature %s", feature)
		}
	}
}
