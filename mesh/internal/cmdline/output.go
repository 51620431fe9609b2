package cmdline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/errorcode"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/mesh/internal/terminal"
	"github.com/dynxds/dynxds/mesh/meshroute"
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

// Validating is how a command that validates judges and prints the result.
type Validating struct {
	strict bool
	format string
}

// ForCI is what the help says of the flags.
const ForCI = `For CI: --strict makes every warning an error, and -o json prints all reports as one
list, whose entries have severity ("note", "warning", "error"), file, line, path, message and, for errors, code.`

// Add adds the flags.
func (o *Validating) Add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.strict, "strict", false, "exit with 1 also if there are warnings")
	Output(cmd, &o.format, "print ", "text", "json")
}

// Print writes what is wrong with a folder, or with another place whose contents the unit counts, and the features that clients lack;
// failed is why there is no result. It returns an error if clients would get errors.
func (o *Validating) Print(out io.Writer, v *site.Validation, failed error, place, unit string) error {
	if v != nil {
		v.Strict = o.strict
	}
	if o.format == "json" {
		return printValidationJSON(out, v, failed)
	}
	if failed != nil {
		return failed
	}
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
	kind, indent := "", ""
	for _, report := range slices.SortedStableFunc(slices.Values(v.Reports), func(a, b meshroute.Report) int { return cmp.Compare(a.Clients, b.Clients) }) {
		if report.Clients != kind { // those about all clients come first
			kind, indent = report.Clients, "  "
			lines.Add(styled.Plain, "%s:", kind)
		}
		at := faults.Fault{File: report.Source.File, Line: report.Source.Line, Path: report.Path, Problem: report.Message}
		if report.Severity != meshroute.Error {
			lines.Add(ofSeverity[report.Severity], "%s%s", indent, report)
			continue
		}
		lines.Add(ofSeverity[report.Severity], "%s%s [%s]", indent, report, errorcode.Of(at, false).ID)
		for _, line := range document.Excerpt(at) {
			lines.Add(styled.Plain, "%s%s", indent, line)
		}
	}
	_ = terminal.Print(out, lines) // who reads it may have gone
}

// validation is a result as data.
type validation struct {
	Valid   bool     `json:"valid"`
	Reports []report `json:"reports"`
	// Omitted is the number of further errors.
	Omitted int `json:"omitted,omitempty"`
}

type report struct {
	Severity meshroute.Severity `json:"severity"`
	// Clients are the kind of clients that it is about, empty for all.
	Clients string `json:"clients,omitempty"`
	Policy  string `json:"policy,omitempty"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Code is of errors: see package errorcode.
	Code string `json:"code,omitempty"`
}

// printValidationJSON writes a result, or what there is in its place, as JSON. It returns an error without a text, for the exit
// status, if the result is not valid.
func printValidationJSON(out io.Writer, v *site.Validation, failed error) error {
	result, reports := validation{Reports: []report{}}, []meshroute.Report(nil)
	if several, ok := errors.AsType[*faults.Faults](failed); ok {
		for _, f := range several.List {
			at := meshroute.Source{File: f.File, Line: f.Line}
			reports = append(reports, meshroute.Report{Severity: meshroute.Error, Source: at, Path: f.Path, Message: strings.TrimSuffix(f.Problem+"; "+f.Suggestion, "; ")})
		}
		result.Omitted = several.Omitted
	} else if failed != nil {
		result.Reports = append(result.Reports, report{Severity: meshroute.Error, Message: failed.Error()}) // no code: no document has it
	}
	if v != nil {
		reports, result.Valid = append(reports, v.Reports...), v.Err() == nil
	}
	for _, r := range reports {
		code := ""
		if r.Severity == meshroute.Error {
			code = errorcode.Of(faults.Fault{Path: r.Path, Problem: r.Message}, false).ID
		}
		result.Reports = append(result.Reports, report{r.Severity, r.Clients, r.Policy, r.Source.File, r.Source.Line, r.Path, r.Message, code})
	}
	if err := WriteData(out, "json", result); err != nil || result.Valid {
		return err
	}
	return &exit.Error{Code: exit.No}
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
	Output(cmd, &r.format, "print the resources, in JSON one a line, as ", "yaml", "json")
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
