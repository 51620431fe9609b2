package main

import "github.com/spf13/cobra"

// oneFolder completes an argument DIR, the only one that there is.
func oneFolder(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeWith completes a flag with the values that it may have.
func completeWith(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	// It fails for a flag that there is not, or that has completions.
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
