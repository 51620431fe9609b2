package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	f.Lookup("watch").NoOptDefVal = "2s"
	f.StringVar(&p.filter.Name, "name", "", "only what has this name; * and ? stand for any text and any character")
	f.StringVar(&p.filter.State, "state", "", "only what is in this state, such as NACKED, failing or READY")
	cmdline.CompleteWith(cmd, "state", status.States()...)
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

// answer is what a command prints, as text or as data.
type answer = cmdline.Answer

// show asks, and prints the answer. With --watch it asks again and again until the context ends: on a terminal an answer
// takes the place of the one before, elsewhere it is printed when it differs. Once there was an answer, whatever it says, a
// process that cannot be reached is asked again, too.
func (p *processFlags) show(cmd *cobra.Command, ask func(context.Context) (answer, error)) error {
	once := func() (answer, error) {
		ctx, cancel := context.WithTimeout(cmd.Context(), p.timeout)
		defer cancel()
		return ask(ctx)
	}
	out := cmd.OutOrStdout()
	first, err := once()
	if p.watch == 0 || first == nil {
		if first != nil {
			err = cmp.Or(cmdline.Print(out, p.format, first), err)
		}
		return err
	}
	screen, inPlace := out.(*terminal.Writer)
	inPlace = inPlace && screen.Redraws() && p.format == "text"
	last := ""
	ticks := time.NewTicker(p.watch)
	defer ticks.Stop()
	for a := first; ; a, err = once() {
		lines, failed := p.lines(a, err)
		if failed != nil {
			return failed
		}
		if cmd.Context().Err() != nil {
			return nil
		}
		if inPlace {
			err = screen.Redraw(lines)
		} else {
			last, err = p.printChange(out, last, lines)
		}
		if err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-cmd.Context().Done():
			return nil
		}
	}
}

// lines returns an answer, which may be nil, and the error beside it, as they are printed.
func (p *processFlags) lines(a answer, answered error) (lines styled.Text, err error) {
	if a != nil && p.format == "text" {
		lines = a.Lines()
	} else if a != nil {
		var b strings.Builder
		if err := cmdline.WriteData(&b, p.format, a); err != nil {
			return nil, err
		}
		lines.AddAll(styled.Plain, b.String())
	}
	if answered != nil && !exit.Silent(answered) {
		lines.AddAll(styled.Bad, fmt.Sprintf("dynxds: %v", answered))
	}
	return lines, nil
}

// printChange prints lines, unless their text is the last one, and returns it.
func (p *processFlags) printChange(out io.Writer, last string, lines styled.Text) (text string, err error) {
	text = lines.String()
	if text == last {
		return text, nil
	}
	if last != "" && p.format == "text" {
		lines = append(styled.Text{{}}, lines...)
	}
	return text, terminal.Print(out, lines)
}
