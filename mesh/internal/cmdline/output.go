package cmdline

import (
	"encoding/json"
	"io"
	"strings"

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

// Lines returns an answer as it is printed.
func Lines(format string, a Answer) (lines styled.Text, err error) {
	if format == "text" {
		return a.Lines(), nil
	}
	var b strings.Builder
	err = WriteData(&b, format, a)
	lines.AddAll(styled.Plain, b.String())
	return lines, err
}

// Print prints an answer.
func Print(out io.Writer, format string, a Answer) error {
	lines, err := Lines(format, a)
	if err != nil {
		return err
	}
	return terminal.Print(out, lines)
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
