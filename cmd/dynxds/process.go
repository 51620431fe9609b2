package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdline"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/exit"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/status"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/terminal"
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
	f := cmd.Flags()
	f.BoolVar(&p.process.TLS, "tls", false, "ask the process with TLS; so do the five flags that follow")
	cmdline.File(cmd, &p.process.CA, "ca", "PEM file with the authorities of the process's certificate (default the system's)")
	cmdline.File(cmd, &p.process.Cert, "cert", "PEM file with the certificate to present to the process")
	cmdline.File(cmd, &p.process.Key, "key", "PEM file with the key of that certificate")
	cmdline.Text(cmd, &p.process.ServerName, "server-name", "a name", "name in the process's certificate, and authority of the request (default the address)")
	f.BoolVar(&p.process.Insecure, "insecure", false, "accept any certificate of the process")
	cmdline.Timeout(cmd, &p.timeout, "how long to wait for the answer of the process")
	cmdline.Period(cmd, &p.watch, "watch", 0, "ask again after this time, and show the answer when it changes; without a time, after 2s")
	f.Lookup("watch").NoOptDefVal = "2s"
	f.StringVar(&p.filter.Name, "name", "", "only what has this name; * and ? stand for any text and any character")
	f.StringVar(&p.filter.State, "state", "", "only what is in this state, such as NACKED, failing or READY")
	cmdline.CompleteWith(cmd, "state", status.States()...)
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
	screen, onTerminal := out.(*terminal.Writer)
	onTerminal = onTerminal && screen.Redraws()
	first, err := once()
	if p.watch == 0 || first == nil {
		if first != nil {
			err = firstOf(cmdline.Print(out, p.format, first, onTerminal), err)
		}
		return err
	}
	last := ""
	ticks := time.NewTicker(p.watch)
	defer ticks.Stop()
	for a := first; ; a, err = once() {
		text := ""
		if a != nil {
			var b strings.Builder
			if err := cmdline.Print(&b, p.format, a, false); err != nil {
				return err
			}
			text = b.String()
		}
		if err != nil && !exit.Silent(err) {
			text += fmt.Sprintf("dynxds: %v\n", err)
		}
		if cmd.Context().Err() != nil {
			return nil
		}
		if onTerminal && p.format == "text" {
			err = screen.Redraw(text)
		} else if text != last {
			if last != "" && p.format == "text" {
				text = "\n" + text
			}
			_, err = io.WriteString(out, text)
			text = strings.TrimPrefix(text, "\n")
		} else {
			err = nil
		}
		if last = text; err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-cmd.Context().Done():
			return nil
		}
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
