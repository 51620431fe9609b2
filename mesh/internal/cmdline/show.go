package cmdline

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/mesh/internal/terminal"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// PrintValidation writes the faults of a folder, or of another place whose contents the unit counts, and the features that clients
// lack. It returns an error if clients would get errors.
func PrintValidation(out io.Writer, v *site.Validation, place, unit string) error {
	PrintReports(out, v)
	if err := v.Err(); err != nil {
		return err
	}
	c := v.Content
	_, err := fmt.Fprintf(out, "%s is valid: %s, %s, %s in %s\n", place, faults.Count(len(c.Services), "service"),
		faults.Count(len(c.Policies), "policy"), faults.Count(len(c.Resources), "resource"),
		faults.Count(c.Files, unit))
	return err
}

// PrintReports writes the reports, by kind of client.
func PrintReports(out io.Writer, v *site.Validation) {
	var lines styled.Text
	kinds, reports := v.ByClients()
	for _, kind := range kinds {
		indent := ""
		if kind != "" {
			lines.Add(styled.Plain, "%s:", kind)
			indent = "  "
		}
		for _, report := range reports[kind] {
			lines.Add(ofSeverity[report.Severity], "%s%s", indent, faults.Printable(report.String(), ""))
		}
	}
	_ = terminal.Print(out, lines) // who reads it may have gone
}

var ofSeverity = map[meshroute.Severity]styled.Style{meshroute.Warning: styled.Doubtful, meshroute.Error: styled.Bad}

// Rendering is how to print what a client gets.
type Rendering struct {
	explain bool
	format  string
}

// Add adds the flags.
func (r *Rendering) Add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.explain, "explain", false, "print the merged policies and where each field comes from")
	Output(cmd, &r.format, "print (JSON: one resource a line) ", "yaml", "json")
	cmd.MarkFlagsMutuallyExclusive("explain", "output")
}

// Print prints what the client of a view gets.
func (r *Rendering) Print(out io.Writer, view site.View) error {
	if r.explain {
		return site.Explain(out, view)
	}
	items, err := site.Resources(view)
	if err != nil {
		return err
	}
	if r.format == "json" {
		return site.PrintJSON(out, items)
	}
	return site.PrintYAML(out, items)
}
