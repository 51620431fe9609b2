package cmdline

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/mesh/internal/terminal"
)

// Output adds the flag of the formats that a command prints, the first one by default.
func Output(cmd *cobra.Command, format *string, usage string, formats ...string) {
	Choice(cmd, format, "output", "o", formats[0], usage, formats...)
}

// TextOrData adds the flag of commands that print text, or the same as data.
func TextOrData(cmd *cobra.Command, format *string) {
	Output(cmd, format, "print ", "text", "json", "yaml")
}

// Answer is what a command prints, as text or as data.
type Answer interface{ Lines() styled.Text }

// Print prints an answer.
func Print(out io.Writer, format string, a Answer) error {
	if format != "text" {
		return WriteData(out, format, a)
	}
	return terminal.Print(out, a.Lines())
}

// WriteData writes a value as indented JSON, or as YAML.
func WriteData(out io.Writer, format string, value any) error {
	if format == "yaml" {
		return site.WriteYAML(out, value)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
