package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
)

// outputFlag adds the flag of the formats that a command prints, the first one by default.
func outputFlag(cmd *cobra.Command, format *string, usage string, formats ...string) {
	choiceVar(cmd, format, "output", "o", formats[0], usage, formats...)
}

// textOrData adds the flag of commands that print text, or the same as data.
func textOrData(cmd *cobra.Command, format *string) {
	outputFlag(cmd, format, "print ", "text", "json", "yaml")
}

// writeData writes a value as indented JSON, or as YAML.
func writeData(out io.Writer, format string, value any) error {
	if format == "yaml" {
		return site.WriteYAML(out, value)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
