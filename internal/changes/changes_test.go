package changes_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/changes"
)

// The tests share the changes of the process, and therefore do not run in parallel.

func TestRecentHasTheLastChangesOnly(t *testing.T) {
	for i := range changes.Max + 7 {
		changes.Add(changes.Change{Kind: changes.Accepted, Name: fmt.Sprint(i)})
	}
	all := changes.Recent()
	if len(all) != changes.Max {
		t.Fatalf("there are %d changes, want %d", len(all), changes.Max)
	}
	for i, c := range all {
		if want := fmt.Sprint(changes.Max + 7 - 1 - i); c.Name != want {
			t.Fatalf("change %d is of %q, want %q: the latest first", i, c.Name, want)
		}
		if c.Number != all[0].Number-uint64(i) || c.Time.IsZero() {
			t.Fatalf("change %d has number %d at %v; the latest has number %d", i, c.Number, c.Time, all[0].Number)
		}
	}
}

// Names and errors come from servers, so that what is kept of them is bounded.
func TestTextsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", changes.MaxText)
	changes.Add(changes.Change{Name: long, From: long, To: long, Detail: long})
	c := changes.Recent()[0]
	for _, text := range []string{c.Name, c.From, c.To, c.Detail} {
		if len(text) > changes.MaxText+len("…") || !strings.HasSuffix(text, "ä…") {
			t.Errorf("a text has %d bytes and ends with %q", len(text), text[len(text)-5:])
		}
	}
}

func TestWatchersAreWokenOnceForABurst(t *testing.T) {
	changed, stop := changes.Watch()
	other, stopOther := changes.Watch()
	defer stopOther()
	for range 3 {
		changes.Add(changes.Change{})
	}
	changes.Touch()
	expectSignals(t, "a burst", changed, 1)
	expectSignals(t, "a burst, for another watcher", other, 1)
	changes.Touch()
	expectSignals(t, "something that is no change", changed, 1)
	stop()
	stop()
	changes.Add(changes.Change{})
	expectSignals(t, "a change after stop", changed, 0)
}

// expectSignals checks how many signals wait.
func expectSignals(t *testing.T, of string, changed <-chan struct{}, want int) {
	t.Helper()
	got := 0
	for {
		select {
		case <-changed:
			got++
			continue
		default:
		}
		break
	}
	if got != want {
		t.Errorf("there are %d signals of %s, want %d", got, of, want)
	}
}

func TestTouchWithoutWatchersAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, changes.Touch); n != 0 {
		t.Errorf("it makes %v allocations", n)
	}
}

func TestConcurrentUse(t *testing.T) {
	changes.Add(changes.Change{}) // this test may be the first
	before := changes.Recent()[0].Number
	const writers, each = 8, 200
	seen := make(chan uint64)
	changed, stop := changes.Watch()
	go func() { // reads until it has seen the last one
		for {
			if n := changes.Recent()[0].Number; n == before+writers*each {
				seen <- n
				return
			}
			<-changed
		}
	}()
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for range each {
				changes.Add(changes.Change{})
				changes.Touch()
				_, stop := changes.Watch()
				stop()
			}
		})
	}
	running.Wait()
	select {
	case <-seen:
	case <-time.After(30 * time.Second):
		t.Error("a watcher missed the last change")
	}
	stop()
}
