package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/internal/faults"
)

func newValidate() *cobra.Command {
	var authority string
	cmd := &cobra.Command{
		Use:   "validate DIR",
		Short: "Check a folder before it is served",
		Long: `Reads a folder as "dynxds serve" does, and prints what is wrong with it, each
fault with its file and line, and what in it clients cannot do, by kind of client. What would be served is decoded as clients of dynxds decode it. The exit
status is 0 only if it could be served, no client would get an error in the place
of a resource, and no client of dynxds would reject one.`,
		Args:              oneArgument,
		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := site.Validate(cmd.Context(), args[0], authority)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if warning := v.Warning(); warning != "" {
				fmt.Fprintf(out, "%s: warning: %s\n", args[0], warning)
			}
			printReports(out, v)
			if err := v.Err(); err != nil {
				return err
			}
			c := v.Content
			_, err = fmt.Fprintf(out, "%s is valid: %s, %s, %s, %s in %s\n", args[0], faults.Count(len(c.Services), "service"),
				faults.Count(len(c.Policies), "policy"), faults.Count(len(c.Denials), "denial"), faults.Count(len(c.Resources), "resource"),
				faults.Count(c.Files, "file"))
			return err
		},
	}
	cmd.Flags().StringVar(&authority, "authority", "", "as for dynxds serve")
	return cmd
}

// printReports writes the reports, by kind of client.
func printReports(out io.Writer, v *site.Validation) {
	kinds, reports := v.ByClients()
	for _, kind := range kinds {
		indent := ""
		if kind != "" {
			fmt.Fprintf(out, "%s:\n", kind)
			indent = "  "
		}
		for _, report := range reports[kind] {
			fmt.Fprintf(out, "%s%s\n", indent, faults.Printable(report.String(), ""))
		}
	}
}
