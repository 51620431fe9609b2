package lbtest

import (
	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/endpoints"
	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// NewEnv returns the Env of a tree on cc, for policies above and below a cluster. Its
// connections do not linger.
func NewEnv(loop *tree.Loop, cc *ClientConn) *tree.Env {
	return &tree.Env{
		Loop: loop, ClientConn: cc, Conns: conns.New(cc, loop.Post, 0),
		Endpoints: endpoints.New(func() {}, func() {}),
	}
}
