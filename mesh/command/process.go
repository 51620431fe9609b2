package command

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/status"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/mesh/internal/terminal"
)

// processFlags say how to ask a running process, how often, and what to show of its answer.
type processFlags struct {
	process status.Process
	timeout time.Duration
	// watch is the time between two answers, 0 for only one.
	watch  time.Duration
	filter status.Filter
	format string
}

func (p *processFlags) add(cmd *cobra.Command) {
	p.addConnection(cmd)
	f := cmd.Flags()
	cmdline.Timeout(cmd, &p.timeout, "how long to wait for the answer of the process")
	cmdline.Period(cmd, &p.watch, "watch", 0, "ask again after this time, and show the answer when it changes; without a time, after 2s")
	watch := f.Lookup("watch")
	watch.DefValue, watch.NoOptDefVal = "", "2s"
	f.StringVar(&p.filter.Name, "name", "", "only what has this name; * and ? stand for any text and any character")
	f.StringVar(&p.filter.State, "state", "", "only what is in this state, such as NACKED, failing or READY")
	cmdline.Complete(cmd, "state", cmdline.Values(status.States()...))
}

// connectionFlags are the flags that say how to connect to a process.
var connectionFlags = []string{"tls", "ca", "cert", "key", "server-name", "insecure"}

// addConnection adds the flags that say how to connect to the process, and how to print the answer.
func (p *processFlags) addConnection(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&p.process.TLS, "tls", false, "ask the process with TLS; so do --ca, --cert, --key, --server-name and --insecure")
	cmdline.File(cmd, &p.process.CA, "ca", "PEM file with the authorities of the process's certificate (default the system's)")
	cmdline.File(cmd, &p.process.Cert, "cert", "PEM file with the certificate to present to the process")
	cmdline.File(cmd, &p.process.Key, "key", "PEM file with the key of that certificate")
	cmdline.Text(cmd, &p.process.ServerName, "server-name", "a name", "name in the process's certificate, and authority of the request (default the address)")
	f.BoolVar(&p.process.Insecure, "insecure", false, "accept any certificate of the process")
	cmdline.TextOrData(cmd, &p.format)
}

// show asks, and prints the answer. With --watch it asks again and again until the context ends: on a terminal an answer
// takes the place of the one before, elsewhere it is printed when it differs, an error on standard error. Once there was an
// answer, whatever it says, a process that cannot be reached is asked again, too.
func show[A interface {
	cmdline.Answer
	comparable
}](cmd *cobra.Command, p *processFlags, ask func(context.Context) (A, error)) error {
	var none A
	out, last := cmd.OutOrStdout(), ""
	screen, inPlace := out.(*terminal.Writer)
	inPlace = inPlace && screen.Redraws() && p.format == "text"
	for answered := false; ; answered = true {
		ctx, cancel := context.WithTimeout(cmd.Context(), p.timeout)
		a, failed := ask(ctx)
		cancel()
		if a == none && (p.watch == 0 || !answered) {
			return failed
		}
		var lines styled.Text
		if a != none {
			var err error
			if lines, err = cmdline.Lines(p.format, a); err != nil {
				return err
			}
		}
		if p.watch == 0 {
			return cmp.Or(terminal.Print(out, lines), failed)
		}
		if cmd.Context().Err() != nil {
			return nil
		}
		var problem styled.Text
		if failed != nil && !exit.Silent(failed) {
			problem.AddAll(styled.Bad, fmt.Sprintf("dynxds: %v", failed))
		}
		var err error
		if text := lines.String() + problem.String(); inPlace {
			err = screen.Redraw(append(lines, problem...))
		} else if text != last {
			if last != "" && a != none && p.format == "text" {
				lines = append(styled.Text{{}}, lines...)
			}
			last, err = text, terminal.Print(out, lines)
			_ = terminal.Print(cmd.ErrOrStderr(), problem) // who reads it may have gone
		}
		if err != nil {
			return err
		}
		if retries.Wait(cmd.Context(), p.watch) != nil {
			return nil
		}
	}
}
