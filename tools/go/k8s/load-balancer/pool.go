package main

import "net/netip"

// pool hands out addresses of a prefix, one to a Service.
type pool struct {
	prefix netip.Prefix
	// held says by which Service ("namespace/name") an address is held.
	held map[netip.Addr]string
	// by says which address a Service holds.
	by map[string]netip.Addr
}

func newPool(prefix netip.Prefix) *pool {
	return &pool{prefix: prefix.Masked(), held: map[netip.Addr]string{}, by: map[string]netip.Addr{}}
}

// take gives a Service the address it asks for (empty: any). Without one that is free it holds none.
func (p *pool) take(service, asked string) (netip.Addr, bool) {
	if asked != "" {
		address, err := netip.ParseAddr(asked)
		if err != nil || !p.prefix.Contains(address) || (p.held[address] != "" && p.held[address] != service) {
			p.release(service)
			return netip.Addr{}, false
		}
		p.hold(service, address)
		return address, true
	}
	if address, ok := p.by[service]; ok {
		return address, true
	}
	for address := p.prefix.Addr().Next(); p.prefix.Contains(address); address = address.Next() {
		if p.held[address] == "" {
			p.hold(service, address)
			return address, true
		}
	}
	return netip.Addr{}, false
}

// hold lets a Service keep an address, and only that.
func (p *pool) hold(service string, address netip.Addr) {
	p.release(service)
	p.held[address] = service
	p.by[service] = address
}

// release says whether there was an address to be freed.
func (p *pool) release(service string) bool {
	address, ok := p.by[service]
	delete(p.held, address)
	delete(p.by, service)
	return ok
}
