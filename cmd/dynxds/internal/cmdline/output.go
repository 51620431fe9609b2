package cmdline

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
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
type Answer interface{ Text() string }

// Print prints an answer. Where there is a terminal, its picture comes last, if it has one.
func Print(out io.Writer, format string, a Answer, onTerminal bool) error {
	if format != "text" {
		return WriteData(out, format, a)
	}
	text := a.Text()
	if drawn, ok := a.(interface{ Picture() string }); ok && onTerminal {
		if picture := drawn.Picture(); picture != "" {
			text += "\n" + picture
		}
	}
	_, err := io.WriteString(out, text)
	return err
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
