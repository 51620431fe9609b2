package dnsconfig

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/backoff"
)

// The look-up errors that net.Resolver has.
var (
	errNotFound = &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}
	errServfail = &net.DNSError{Err: "server misbehaving", Name: "x", IsTemporary: true}
	errTimeout  = &net.DNSError{Err: "i/o timeout", Name: "x", IsTimeout: true}
	errRefused  = &net.DNSError{Err: "server misbehaving", Name: "x"}
)

// scene is a watcher in a synctest bubble, over answers that the test gives.
type scene struct {
	*watcher
	began time.Time

	mu      sync.Mutex
	records []string
	err     error
	hang    bool
	results []*Result
	times   []time.Duration // of look-ups, since the beginning
}

// watch runs a test with a watcher that has started its first look-up.
func watch(t *testing.T, records []string, err error, test func(*testing.T, *scene)) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{began: time.Now(), records: records, err: err}
		s.watcher = &watcher{
			name:    "_grpc_config.x",
			lookup:  s.lookUp,
			client:  here,
			options: Options{Hostname: "host-1"}.withDefaults(),
			deliver: s.add,
			asked:   make(chan struct{}, 1),
		}
		go s.run(t.Context())
		synctest.Wait()
		test(t, s)
	})
}

func (s *scene) lookUp(ctx context.Context, _ string) ([]string, error) {
	s.mu.Lock()
	s.times = append(s.times, time.Since(s.began))
	records, err, hang := s.records, s.err, s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, errTimeout
	}
	return records, err
}

func (s *scene) add(r *Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = append(s.results, r)
}

func (s *scene) answer(records []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records, s.err = records, err
}

// outcomes returns the outcomes so far, and forgets them.
func (s *scene) outcomes() (all []Outcome) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.results {
		all = append(all, r.Outcome)
	}
	s.results = nil
	return all
}

func (s *scene) expect(t *testing.T, when string, want ...Outcome) {
	t.Helper()
	if diff := cmp.Diff(want, s.outcomes()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

var good = []string{"grpc_config=" + list(choice("a"))}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		records []string
		err     error
		want    Outcome
	}{
		{"a choice", good, nil, OutcomeChosen},
		{"NXDOMAIN or NODATA", nil, errNotFound, OutcomeNoRecord},
		{"no TXT", nil, nil, OutcomeNoRecord},
		{"other TXT", []string{"v=spf1"}, nil, OutcomeNoRecord},
		{"SERVFAIL", nil, errServfail, OutcomeFailed},
		{"timeout", nil, errTimeout, OutcomeFailed},
		{"REFUSED", nil, errRefused, OutcomeFailed},
		{"cancelled", nil, context.DeadlineExceeded, OutcomeFailed},
		{"empty list", []string{"grpc_config=[]"}, nil, OutcomeNoMatch},
		{"for others", []string{"grpc_config=" + list(choice("a", `"clientLanguage":["java"]`))}, nil, OutcomeNoMatch},
		{"only void choices", []string{"grpc_config=[{}]"}, nil, OutcomeNoMatch},
		{"not JSON", []string{"grpc_config=?"}, nil, OutcomeFaulty},
		{"empty value", []string{"grpc_config="}, nil, OutcomeFaulty},
		{"two records", append(good, good...), nil, OutcomeFaulty},
	} {
		t.Run(test.name, func(t *testing.T) {
			watch(t, test.records, test.err, func(t *testing.T, s *scene) { s.expect(t, "at once", test.want) })
		})
	}
}

func TestResultSaysWhatWasTakenAndWhatIsVoid(t *testing.T) {
	t.Parallel()
	watch(t, []string{"grpc_config=" + list(`{}`, choice("a"), `7`)}, nil, func(t *testing.T, s *scene) {
		r := s.results[0]
		if r.Choice == nil || r.Choice.Index != 1 || len(r.Void) != 2 || r.Void[0].Index != 0 || r.Void[1].Index != 2 || r.Client != here || r.Name != "_grpc_config.x" {
			t.Errorf("result %+v", r)
		}
	})
}

func TestFailedLookUpIsRepeatedWithBackoff(t *testing.T) {
	t.Parallel()
	watch(t, nil, errServfail, func(t *testing.T, s *scene) {
		time.Sleep(20 * time.Minute)
		s.mu.Lock()
		times := s.times
		s.mu.Unlock()
		want := backoff.DefaultConfig.BaseDelay
		for i := 1; i < len(times); i++ {
			pause := times[i] - times[i-1]
			if low, high := want*79/100, want*121/100; pause < low || pause > high {
				t.Errorf("pause %d is %v, want %v give or take 20%%", i, pause, want)
			}
			want = min(time.Duration(float64(want)*backoff.DefaultConfig.Multiplier), backoff.DefaultConfig.MaxDelay)
		}
		if len(times) < 15 {
			t.Errorf("%d look-ups in 20 minutes", len(times))
		}
		// Asking does not shorten the pause.
		n := len(times)
		for range 100 {
			s.refresh()
			synctest.Wait()
		}
		if len(s.times) != n {
			t.Errorf("%d look-ups more on request", len(s.times)-n)
		}
		s.outcomes()
		s.answer(good, nil)
		time.Sleep(backoff.DefaultConfig.MaxDelay * 16 / 10)
		s.expect(t, "after the outage", OutcomeChosen, OutcomeChosen)
	})
}

func TestReResolutionIsOnRequestAndAtABoundedRate(t *testing.T) {
	t.Parallel()
	watch(t, good, nil, func(t *testing.T, s *scene) {
		s.expect(t, "at once", OutcomeChosen)
		time.Sleep(time.Hour)
		s.expect(t, "without a request")
		s.refresh()
		s.expect(t, "long after the last look-up", OutcomeChosen)
		for range 290 {
			s.refresh()
			time.Sleep(time.Second)
		}
		if n := len(s.outcomes()); n < 8 || n > 10 {
			t.Errorf("%d look-ups in 290 seconds of requests, want one in 30 seconds", n)
		}
	})
}

func TestLookUpTimesOut(t *testing.T) {
	t.Parallel()
	watch(t, good, nil, func(t *testing.T, s *scene) {
		s.expect(t, "at once", OutcomeChosen)
		s.mu.Lock()
		s.hang = true
		s.mu.Unlock()
		time.Sleep(time.Minute)
		s.refresh()
		synctest.Wait()
		time.Sleep(s.options.Timeout - time.Millisecond)
		s.expect(t, "before the timeout")
		time.Sleep(time.Millisecond)
		s.expect(t, "at the timeout", OutcomeFailed)
	})
}

func TestUnchangedRecordsAreNotReadAgain(t *testing.T) {
	t.Parallel()
	two := []string{"x=y", good[0]}
	watch(t, two, nil, func(t *testing.T, s *scene) {
		time.Sleep(time.Minute)
		s.answer([]string{good[0], "x=y"}, nil)
		s.refresh()
		synctest.Wait()
		if s.results[0].Choice != s.results[1].Choice {
			t.Error("records in another order were parsed again")
		}
	})
}
