package testutils

import (
	"fmt"
	"net"
	"syscall"
)

// A port is a TCP port on 127.0.0.1 that stays ours while nobody listens on
// it. Between Stop and Restart of a server the kernel could otherwise hand the
// port to any connection of the machine, and the restart would fail.
type port struct {
	addr string
	fd   int
}

// reservePort binds a socket that never listens. Linux lets a second socket
// bind to the same port and listen, as both have SO_REUSEADDR (net.Listen sets
// it); while none listens, connections are refused.
func reservePort() (*port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserving a port: socket: %w", err)
	}
	p := &port{fd: fd}
	if err := p.bind(); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := syscall.SetsockoptInt(p.fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("SO_REUSEADDR: %w", err)
	}
	if err := syscall.Bind(p.fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	name, err := syscall.Getsockname(p.fd)
	if err != nil {
		return fmt.Errorf("getsockname: %w", err)
	}
	inet, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return fmt.Errorf("getsockname: got a %T", name)
	}
	p.addr = fmt.Sprintf("127.0.0.1:%d", inet.Port)
	return nil
}

func (p *port) listen() (net.Listener, error) { return net.Listen("tcp", p.addr) }

func (p *port) release() { syscall.Close(p.fd) }
