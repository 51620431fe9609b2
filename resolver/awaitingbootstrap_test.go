package resolver

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// The environment is read at growing intervals, hardly more often because of ResolveNow, and
// not after the channel is closed.
func TestTheEnvironmentIsReadRepeatedly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		b := &builder{scheme: scheme, environment: true, config: func() (*bootstrap.Config, error) {
			reads.Add(1)
			return nil, errors.New("no such file")
		}}
		kept := &keepingBuilder{builder: b}
		cc, err := grpc.NewClient("xds:///echo.example.com", grpc.WithResolvers(kept), grpc.WithTransportCredentials(insecure.NewCredentials()))
		xdstest.NoError(t, err)
		defer cc.Close()
		cc.Connect()
		synctest.Wait()
		xdstest.Equal(t, "reads at first", 1, reads.Load())
		const minutes = 10
		time.Sleep(minutes * time.Minute)
		synctest.Wait()
		steady := int32(minutes*time.Minute/maxReread) + 10
		if n := reads.Load(); n < steady/2 || n > steady {
			t.Errorf("read %d times in %d minutes, want about %d", n, minutes, steady)
		}
		before := reads.Load()
		for range 100 {
			kept.built.ResolveNow(grpcresolver.ResolveNowOptions{})
			synctest.Wait()
		}
		if n := reads.Load() - before; n > 1 {
			t.Errorf("read %d times for 100 times ResolveNow, want at most once", n)
		}
		cc.Close()
		synctest.Wait()
		before = reads.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		xdstest.Equal(t, "reads by a closed channel", 0, reads.Load()-before)
	})
}

// keepingBuilder keeps the resolver it has built.
type keepingBuilder struct {
	*builder
	built grpcresolver.Resolver
}

func (b *keepingBuilder) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (r grpcresolver.Resolver, err error) {
	b.built, err = b.builder.Build(target, cc, opts)
	return b.built, err
}
