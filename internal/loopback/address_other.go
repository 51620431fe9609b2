//go:build !linux

package loopback

import "net"

func reserve() (addr string, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() {}, l.Close()
}

func listen(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
