package dnsconfig

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// failures are the look-up errors that net.Resolver has.
var failures = map[string]error{
	"notfound": &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true},
	"servfail": &net.DNSError{Err: "server misbehaving", Name: "x", IsTemporary: true},
	"timeout":  &net.DNSError{Err: "i/o timeout", Name: "x", IsTimeout: true},
	"refused":  &net.DNSError{Err: "server misbehaving", Name: "x"},
	"canceled": context.DeadlineExceeded,
}

// TestRecords has what is made of TXT records, and when they are looked up. The file says what the steps are.
func TestRecords(t *testing.T) {
	golden.Scripts(t, "testdata/records.txt", 0, func(t testing.TB) func(string) string { return (&scene{t: t}).step })
}

// scene is the look-ups of a joint in a synctest bubble, over answers that the test gives.
type scene struct {
	t testing.TB
	*joint

	mu      sync.Mutex
	answer  string
	results []*Result // that have not been printed
	choice  *Choice   // of the last that has
	times   []time.Time
}

func (s *scene) step(line string) string {
	verb, text, _ := strings.Cut(golden.Repeat(line), " ")
	switch verb {
	case "attribute":
		name, value, ok := splitAttribute(quoted(s.t, text)[0])
		if !ok {
			return "none"
		}
		return fmt.Sprintf("%q %q", name, value)
	case "find":
		value, found, err := Find(quoted(s.t, text))
		if !found && err == nil {
			return "none"
		}
		if err != nil {
			return err.Error()
		}
		return strconv.Quote(value)
	case "host":
		return strconv.Quote(hostOf(quoted(s.t, text)[0]))
	case "server":
		server, err := serverAddress(text)
		if err != nil {
			return err.Error()
		}
		return server
	case "answer":
		s.mu.Lock()
		s.answer = text
		s.mu.Unlock()
		if s.joint != nil {
			return ""
		}
		s.start()
	case "ask":
		s.refresh()
	case "asks": // each second
		n, err := strconv.Atoi(text)
		xdstest.NoError(s.t, err)
		for range n {
			s.refresh()
			time.Sleep(time.Second)
		}
	case "sleep":
		d, err := time.ParseDuration(text)
		xdstest.NoError(s.t, err)
		time.Sleep(d)
	}
	return s.outcomes()
}

// quoted reads texts in Go's syntax.
func quoted(t testing.TB, text string) (all []string) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		first, err := strconv.QuotedPrefix(text)
		xdstest.NoError(t, err)
		one, err := strconv.Unquote(first)
		xdstest.NoError(t, err)
		all, text = append(all, one), text[len(first):]
	}
	return all
}

// start starts the look-ups.
func (s *scene) start() {
	s.joint = &joint{
		ClientConn: new(fakeChannel),
		name:       "_grpc_config.x",
		lookup:     s.lookUp,
		client:     here,
		options:    Options{Hostname: "host-1", OnResult: s.add}.withDefaults(),
		asked:      make(chan struct{}, 1),
	}
	go s.run(s.t.Context())
}

func (s *scene) lookUp(ctx context.Context, _ string) ([]string, error) {
	s.mu.Lock()
	s.times = append(s.times, time.Now())
	answer := s.answer
	s.mu.Unlock()
	if answer == "hangs" {
		<-ctx.Done()
		return nil, failures["timeout"]
	}
	if err := failures[answer]; err != nil {
		return nil, err
	}
	return quoted(s.t, answer), nil
}

func (s *scene) add(r *Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = append(s.results, r)
	if r.Client != here || r.Name != "_grpc_config.x" {
		s.t.Errorf("a result is %+v", r)
	}
}

// outcomes returns the outcomes since the last step: with the number of the choice, unless the one before had it too, and those that are void.
func (s *scene) outcomes() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, r := range s.results {
		text := string(r.Outcome)
		if r.Choice != nil && r.Choice != s.choice {
			text += fmt.Sprint(" ", r.Choice.Index)
		}
		for _, v := range r.Void {
			text += fmt.Sprint(", void ", v.Index)
		}
		if r.Outcome == OutcomeFaulty {
			text += ": " + r.Err.Error()
		}
		s.choice = r.Choice
		all = append(all, text)
	}
	s.results = nil
	if n := len(all); n > 3 && len(slices.Compact(slices.Clone(all))) == 1 {
		return fmt.Sprintf("%d times %s", n, all[0])
	}
	return strings.Join(all, "; ")
}

func TestFailedLookUpIsRepeatedWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, answer: "servfail"}
		s.start()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		times, want := s.times, backoff.DefaultConfig.BaseDelay
		for i := 1; i < len(times); i++ {
			pause := times[i].Sub(times[i-1])
			if low, high := want*79/100, want*121/100; pause < low || pause > high {
				t.Errorf("pause %d is %v, want %v give or take 20%%", i, pause, want)
			}
			want = min(time.Duration(float64(want)*backoff.DefaultConfig.Multiplier), backoff.DefaultConfig.MaxDelay)
		}
		if len(times) < 15 {
			t.Errorf("%d look-ups in 20 minutes", len(times))
		}
	})
}
