package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// defaultTimeout is the default of --timeout.
const defaultTimeout = 10 * time.Second

// timeoutFlag adds the flag of commands that ask another process. Those that ask etcd have --store-timeout.
func timeoutFlag(cmd *cobra.Command, timeout *time.Duration, usage string) {
	*timeout = defaultTimeout
	cmd.Flags().Var(positive{timeout}, "timeout", usage)
}

// positive is a flag of a duration, which is not 0.
type positive struct{ value *time.Duration }

func (p positive) String() string {
	if p.value == nil { // pflag makes zero values, to compare with defaults
		return ""
	}
	return p.value.String()
}

func (p positive) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%w: want for example %s", err, defaultTimeout)
	}
	if d <= 0 {
		return errors.New("want a duration above 0")
	}
	*p.value = d
	return nil
}

func (positive) Type() string { return "duration" }
