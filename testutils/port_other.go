//go:build !linux

package testutils

import (
	"fmt"
	"net"
)

// A port is a TCP port on 127.0.0.1 that was free when it was reserved. Unlike
// on Linux nothing holds it while no server listens.
type port struct{ addr string }

func reservePort() (*port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	defer l.Close()
	return &port{addr: l.Addr().String()}, nil
}

func (p *port) listen() (net.Listener, error) { return net.Listen("tcp", p.addr) }

func (p *port) release() {}
