package dnsconfig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/retries"
)

// lookupFunc looks up the TXT records of a name; each is its character strings
// concatenated in order. Its errors are those of net.Resolver.
type lookupFunc = func(ctx context.Context, name string) ([]string, error)

// refresh requests a look-up. It does not block.
func (j *joint) refresh() {
	select {
	case j.asked <- struct{}{}:
	default:
	}
}

// run looks up at once, then on request, at most every Options.MinInterval, and with backoff
// while DNS does not answer. It returns when ctx ends.
func (j *joint) run(ctx context.Context) {
	failures := 0
	for {
		r := j.look(ctx)
		if ctx.Err() != nil {
			return
		}
		j.deliver(r)
		ended := time.Now()
		pause := j.options.MinInterval
		if r.Outcome == OutcomeFailed {
			pause = retries.After(failures, backoff.DefaultConfig)
			failures++
		} else {
			failures = 0
			select {
			case <-ctx.Done():
				return
			case <-j.asked:
			}
		}
		if retries.Wait(ctx, time.Until(ended.Add(pause))) != nil {
			return
		}
	}
}

func (j *joint) look(ctx context.Context) *Result {
	ctx, cancel := context.WithTimeout(ctx, j.options.Timeout)
	defer cancel()
	records, err := j.lookup(ctx, j.name)
	r := &Result{Name: j.name, Time: time.Now(), Client: j.client}
	switch dnsErr := (*net.DNSError)(nil); {
	case errors.As(err, &dnsErr) && dnsErr.IsNotFound:
		records = nil
	case err != nil:
		r.Outcome, r.Err = OutcomeFailed, err
		return r
	}
	slices.Sort(records) // Servers rotate them.
	if j.last != nil && slices.Equal(records, j.records) {
		again := *j.last
		again.Time = r.Time
		return &again
	}
	j.judge(r, records)
	j.records, j.last = records, r
	return r
}

// judge sets the result for the records.
func (j *joint) judge(r *Result, records []string) {
	value, found, err := Find(records)
	if err == nil && found {
		var list *List
		if list, err = Parse(value, func(config string) error { return j.ParseServiceConfig(config).Err }); err == nil {
			r.Choice, r.Void = list.Choose(j.client), list.Void
		} else if len(records) > 1 {
			err = fmt.Errorf("%w; the name has %d TXT records, and DNS joins the strings of one record only", err, len(records))
		}
	}
	switch {
	case err != nil:
		r.Outcome, r.Err = OutcomeFaulty, err
	case !found:
		r.Outcome = OutcomeNoRecord
	case r.Choice == nil:
		r.Outcome = OutcomeNoMatch
	default:
		r.Outcome = OutcomeChosen
	}
}
