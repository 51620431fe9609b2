package main

import "github.com/spf13/cobra"

// oneFolder completes a single argument DIR.
func oneFolder(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeWith completes a flag with its possible values.
func completeWith(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	// It fails if there is no such flag, or it has completions already.
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
