package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// nonEmpty is a flag whose value may not be empty, as it is if it comes from a shell variable that is not
// set: that must not mean a server without TLS, or a relay without access rules.
type nonEmpty struct {
	value *string
	what  string
}

// fileVar defines a flag that names a file.
func fileVar(cmd *cobra.Command, value *string, name, usage string) {
	cmd.Flags().Var(nonEmpty{value, "the path of a file"}, name, usage)
}

func (n nonEmpty) String() string {
	if n.value == nil { // pflag makes zero values, to compare with defaults
		return ""
	}
	return *n.value
}

func (n nonEmpty) Set(value string) error {
	if value == "" {
		return fmt.Errorf("want %s", n.what)
	}
	*n.value = value
	return nil
}

func (nonEmpty) Type() string { return "string" }
