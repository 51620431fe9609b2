package grpcbridge

import (
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

// Register registers a Builder with gRPC, as resolver.Register does, and claims its scheme
// for dynxds. If another package registers a builder for the scheme afterwards, which the
// order of imports decides, the first channel that is lost to it is reported in the log.
func Register(b resolver.Builder) {
	claimed.schemes.Store(b.Scheme(), true)
	resolver.Register(b)
}

// ResolvePerChannel says that the program gives channels resolvers of their own. Which
// resolver a channel has is then looked at when it is used, not when it is dialled.
func ResolvePerChannel() { claimed.perChannel.Store(true) }

// claimed are the claims of the process, as gRPC's registry of resolvers is the process's.
var claimed claims

// claims finds the first channel with a scheme of ours that another package resolves.
type claims struct {
	schemes    sync.Map // the claimed schemes
	perChannel atomic.Bool
	reported   atomic.Bool
}

// dialled looks at a channel that is being made. Its resolver is not known yet, unless it
// is the registered one.
func (c *claims) dialled(target url.URL) {
	if !c.perChannel.Load() {
		c.check(target.Scheme, target.String(), reflect.TypeOf(resolver.Get(target.Scheme)))
	}
}

// used looks at a channel that dynxds does not serve. One that has a resolver of its own
// was not lost.
func (c *claims) used(cc *grpc.ClientConn) {
	if builderField == nil || c.reported.Load() {
		return
	}
	scheme, _, _ := strings.Cut(cc.CanonicalTarget(), ":")
	registered := reflect.TypeOf(resolver.Get(scheme))
	if builder := reflect.ValueOf(cc).Elem().FieldByIndex(builderField); !builder.IsNil() && builder.Elem().Type() == registered {
		c.check(scheme, cc.CanonicalTarget(), registered)
	}
}

func (c *claims) check(scheme, target string, registered reflect.Type) {
	if _, ours := c.schemes.Load(scheme); !ours || registered == nil || registered.Implements(bridgedType) || c.reported.Swap(true) {
		return
	}
	from := registered
	if from.Kind() == reflect.Pointer {
		from = from.Elem()
	}
	logger.Errorf("dynxds does not serve the channel to %q: package %s, which is linked too, has registered a resolver for the scheme %q after it. "+
		"For dynxds, dial the scheme \"dynxds\", pass dynxds.DialOptions() to grpc.NewClient, or call Register of github.com/dynxds/dynxds/resolver in main. "+
		"If the program has an xDS server of gRPC-Go and its control plane is an agent that serves one stream, as Istio's, call InProcess of github.com/dynxds/dynxds/mesh/relay too. "+
		"Further channels are not reported.", target, from.PkgPath(), scheme)
}
