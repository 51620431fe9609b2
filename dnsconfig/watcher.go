package dnsconfig

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/retries"
)

// lookupFunc looks up the TXT records of a name; each is its character strings
// concatenated in order. Its errors are those of net.Resolver.
type lookupFunc = func(ctx context.Context, name string) ([]string, error)

// watcher looks up the records of one name repeatedly. Only refresh may be called by other
// goroutines than that of run.
type watcher struct {
	name     string
	lookup   lookupFunc
	client   Client
	validate func(serviceConfig string) error
	options  Options
	deliver  func(*Result) // gets every result
	asked    chan struct{} // has room for one request, so that none is lost

	records []string // of the last look-up that was answered
	last    *Result  // of records
}

// refresh requests a look-up. It does not block.
func (w *watcher) refresh() {
	select {
	case w.asked <- struct{}{}:
	default:
	}
}

// run looks up at once, then on request, at most every Options.MinInterval, and with backoff
// while DNS does not answer. It returns when ctx ends.
func (w *watcher) run(ctx context.Context) {
	failures := 0
	for {
		r := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		w.deliver(r)
		ended := time.Now()
		pause := w.options.MinInterval
		if r.Outcome == OutcomeFailed {
			pause = retries.After(failures, backoff.DefaultConfig)
			failures++
		} else {
			failures = 0
			select {
			case <-ctx.Done():
				return
			case <-w.asked:
			}
		}
		if retries.Wait(ctx, time.Until(ended.Add(pause))) != nil {
			return
		}
	}
}

func (w *watcher) look(ctx context.Context) *Result {
	ctx, cancel := context.WithTimeout(ctx, w.options.Timeout)
	defer cancel()
	records, err := w.lookup(ctx, w.name)
	r := &Result{Name: w.name, Time: time.Now(), Client: w.client}
	switch dnsErr := (*net.DNSError)(nil); {
	case errors.As(err, &dnsErr) && dnsErr.IsNotFound:
		records = nil
	case err != nil:
		r.Outcome, r.Err = OutcomeFailed, err
		return r
	}
	slices.Sort(records) // Servers rotate them.
	if w.last != nil && slices.Equal(records, w.records) {
		again := *w.last
		again.Time = r.Time
		return &again
	}
	w.judge(r, records)
	w.records, w.last = records, r
	return r
}

// judge sets the result for the records.
func (w *watcher) judge(r *Result, records []string) {
	value, found, err := Find(records)
	if err != nil {
		r.Outcome, r.Err = OutcomeFaulty, err
		return
	}
	if !found {
		r.Outcome = OutcomeNoRecord
		return
	}
	list, err := Parse(value, w.validate)
	if err != nil {
		r.Outcome, r.Err = OutcomeFaulty, err
		return
	}
	r.Outcome, r.Choice, r.Void = OutcomeNoMatch, list.Choose(w.client), list.Void
	if r.Choice != nil {
		r.Outcome = OutcomeChosen
	}
}
