package document_test

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/document"
)

// TestTranscripts reads documents. The cases in testdata/transcripts are followed by their errors; those of the section "converted" by their JSON.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	golden.Cases(t, "testdata/transcripts/*.txt", func(section, input string) string {
		if section == "converted" {
			return compact(document.Parse("f.yaml", []byte(input), new(document.Faults))[0])
		}
		file := "f.yaml"
		if strings.HasSuffix(section, "JSON") {
			file = "f.json"
		}
		return faultsOf(file, input+"\n")
	})
}

// faultsOf returns the errors of a file, one a line.
func faultsOf(file, text string) string {
	var faults document.Faults
	for _, document := range document.Parse(file, []byte(text), &faults) {
		read(document)
	}
	if err := faults.Err(); err != nil {
		return err.Error()
	}
	return "no fault"
}
