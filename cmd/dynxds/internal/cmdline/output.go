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
