package tree_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoopRunsInOrderOneAtATime(t *testing.T) {
	t.Parallel()
	l := tree.NewLoop(func() {})
	var got, want []int // written on the loop only, as the race detector checks
	for i := range 1000 {
		want = append(want, i)
		l.Post(func() { got = append(got, i) })
	}
	l.Do(func() {})
	xdstest.Equal(t, "functions in the order of posting", want, got)
}

func TestLoopRunsPostsFromManyGoroutines(t *testing.T) {
	t.Parallel()
	l := tree.NewLoop(func() {})
	ran := 0
	var posters sync.WaitGroup
	for range 50 {
		posters.Go(func() {
			for range 100 {
				l.Post(func() { ran++ })
			}
		})
	}
	posters.Wait()
	l.Do(func() {})
	xdstest.Equal(t, "functions ran", 5000, ran)
}

func TestLoopSettlesOncePerBurst(t *testing.T) {
	t.Parallel()
	settled := 0
	l := tree.NewLoop(func() { settled++ })
	var ran, settledDuring int
	l.Do(func() { // the burst: posted while the loop is busy
		settledDuring = settled
		for range 10 {
			l.Post(func() { ran++ })
		}
	})
	var settledAfter int
	l.Do(func() { settledAfter = settled })
	if settledDuring != 0 || ran != 10 {
		t.Fatalf("settled %d times before the burst, %d of 10 ran", settledDuring, ran)
	}
	if settledAfter < 1 || settledAfter > 2 {
		t.Errorf("settled %d times for two bursts, want 1 or 2", settledAfter)
	}
}

func TestLoopSettlesUnderASteadyStream(t *testing.T) {
	t.Parallel()
	settled := make(chan struct{})
	l := tree.NewLoop(sync.OnceFunc(func() { close(settled) }))
	var again func()
	again = func() {
		select {
		case <-settled:
		default:
			l.Post(again)
		}
	}
	l.Post(again)
	select {
	case <-settled:
	case <-time.After(10 * time.Second):
		t.Fatal("the loop never settled while jobs kept coming")
	}
}

func TestLoopClose(t *testing.T) {
	t.Parallel()
	l := tree.NewLoop(func() {})
	dropped := false
	waiter := make(chan bool, 1)
	l.Do(func() {
		l.Post(func() { dropped = true })
		l.Close()
	})
	go func() { waiter <- l.Do(func() { dropped = true }) }()
	if ran := <-waiter; ran {
		t.Error("Do reported that it ran on a closed loop")
	}
	l.Post(func() { dropped = true })
	if dropped {
		t.Error("a function ran after Close")
	}
}

func TestLoopCloseEndsWaitingDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := tree.NewLoop(func() {})
		hold, result := make(chan struct{}), make(chan bool, 1)
		l.Post(func() { <-hold; l.Close() })
		go func() { result <- l.Do(func() { t.Error("ran after Close") }) }()
		synctest.Wait()
		close(hold)
		if ran := <-result; ran {
			t.Error("Do reported that it ran on a closed loop")
		}
	})
}

func TestTimer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		stop  time.Duration // 0: never
		fires bool
	}{
		{"fires after its time", 0, true},
		{"does not fire when stopped before", 5 * time.Second, false},
		{"does not fire when stopped at that very moment", 10 * time.Second, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := tree.NewLoop(func() {})
				fired := false
				var timer tree.Timer
				l.Do(func() {
					l.After(&timer, 10*time.Second, func() { fired = true })
					if tc.stop == 0 {
						return
					}
					// The loop is busy until the moment of Stop, so the timer's function would
					// run after it.
					time.Sleep(tc.stop)
					synctest.Wait()
					timer.Stop()
				})
				time.Sleep(time.Minute)
				l.Do(func() {
					xdstest.Equal(t, "fired", tc.fires, fired)
					xdstest.Equal(t, "pending", false, timer.Pending())
				})
			})
		})
	}
}

func TestTimerThatIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := tree.NewLoop(func() {})
		var timer tree.Timer
		var fired []string
		l.Do(func() {
			l.After(&timer, time.Second, func() { fired = append(fired, "first") })
			time.Sleep(time.Second) // It fires, and its function waits for the loop.
			synctest.Wait()
			l.After(&timer, time.Second, func() { fired = append(fired, "second") })
		})
		time.Sleep(time.Minute)
		l.Do(func() { xdstest.Equal(t, "fired", "[second]", fmt.Sprint(fired)) })
	})
}

func TestAskWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := tree.NewLoop(func() {})
		hold := make(chan struct{})
		l.Post(func() { <-hold })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		late := false
		if l.Ask(ctx, func() { late = true }) {
			t.Error("Ask reported that a function ran that was still waiting")
		}
		close(hold)
		asked := false
		if !l.Ask(context.Background(), func() { asked = true }) || !asked || !late {
			t.Errorf("afterwards: asked %v, and the late function ran: %v", asked, late)
		}
		l.Do(l.Close)
		if l.Ask(context.Background(), func() {}) {
			t.Error("Ask reported that it ran on a closed loop")
		}
	})
}
