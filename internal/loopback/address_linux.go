package loopback

import (
	"net"
	"os"
	"sync"
	"syscall"
)

// reserve binds a socket that never listens. Between a stop and a restart the kernel could otherwise give the port to another
// connection, and the restart would fail. Linux lets a second socket bind to the same port and listen, as both have
// SO_REUSEADDR (net.Listen sets it); while none listens, connections are refused.
func reserve() (addr string, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	release = sync.OnceFunc(func() { syscall.Close(fd) }) // Another file may get the number.
	if err = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)); err == nil {
		err = os.NewSyscallError("bind", syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	}
	var name syscall.Sockaddr
	if err == nil {
		name, err = syscall.Getsockname(fd)
	}
	if err != nil {
		release()
		return "", nil, err
	}
	bound := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
	return bound.String(), release, nil
}

func listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return listener{l.(*net.TCPListener)}, nil
}

// listener is a TCP listener that stops listening when it is closed, even while another process has its socket: a
// process that is being started holds the sockets of its parent until it executes its program.
type listener struct{ *net.TCPListener }

// Close implements net.Listener.
func (l listener) Close() error {
	if raw, err := l.SyscallConn(); err == nil {
		// It fails only if the listener is closed already.
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
	return l.TCPListener.Close()
}
