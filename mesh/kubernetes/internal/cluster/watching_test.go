package cluster

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// An API server that accepts requests and does not answer them is an outage since the first of these, which is known and logged within
// 30 s.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		log := &xdstest.Log{}
		w := &watching{log: slog.New(slog.NewTextHandler(log, nil)), ask: func(ctx context.Context) error {
			if !silent.Load() {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		xdstest.NoError(t, w.start(t.Context()))
		time.Sleep(time.Minute)
		synctest.Wait()
		xdstest.Equal(t, "gone before", time.Time{}, w.goneSince())
		silent.Store(true)
		began := time.Now()
		time.Sleep(30 * time.Second)
		if late := w.goneSince().Sub(began); w.goneSince().IsZero() || late > askEvery {
			t.Errorf("it is gone since %s, %s after it is", w.goneSince(), late)
		}
		xdstest.Equal(t, "lines of the log that say since when", 1, log.Count("since="+w.goneSince().Format(time.RFC3339)[:19]))
		silent.Store(false)
		time.Sleep(answerTime + askEvery)
		synctest.Wait()
		xdstest.Equal(t, "gone after", time.Time{}, w.goneSince())
		w.note(t.Context(), w.all[0], apierrors.NewUnauthorized(""), time.Now())
		xdstest.Equal(t, "permissions that are missing in the log", 1, log.Count("does not let this server read what it needs"))
		w.close()
	})
}

func TestNamespaceOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"greeter": "", "greeter:8080": "", "greeter.shop": "shop", "greeter.shop:8080": "shop", "greeter.shop.svc.cluster.local:grpc": "shop",
		"greeter.shop:8080;no-such-service": "shop", "xdstp://mesh/envoy.config.listener.v3.Listener/greeter.shop:8080": "shop",
		"xdstp://mesh/envoy.config.listener.v3.Listener/greeter.shop%3A8080?a=b": "shop",
	} {
		xdstest.Equal(t, name, want, namespaceOf(name))
	}
}
