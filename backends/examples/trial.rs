use rml_backends::matmul::*;
use rml_backends::TileMut;
use rml_kernels_ref::activation::*;
use rml_kernels_ref::format::Format;
use std::time::Instant;

struct Rng(u64);
impl Rng { fn next(&mut self) -> u64 { self.0 ^= self.0 << 13; self.0 ^= self.0 >> 7; self.0 ^= self.0 << 17; self.0 } 
 fn f(&mut self) -> f32 { (self.next() >> 40) as f32 / (1u64<<24) as f32 * 2.0 - 1.0 } }

fn f16_at(format: Format) -> &'static [usize] { match format { Format::Q4_0|Format::Q5_0|Format::Q8_0 => &[0], Format::Q4_1|Format::Q5_1 => &[0,2], Format::Q4_K|Format::Q5_K=>&[0,2], Format::Q6_K=>&[208], Format::Q3_K=>&[108], Format::Q2_K=>&[80,82], _=>&[] } }

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let only = args.get(1).map(|s| s.as_str()).unwrap_or("");
    let n: usize = args.get(2).map_or(576, |s| s.parse().unwrap());
    let k: usize = args.get(3).map_or(576, |s| s.parse().unwrap());
    let ms: Vec<usize> = args.get(4).map_or(vec![1,4,8,32,512], |s| s.split(',').map(|x| x.parse().unwrap()).collect());
    let copies: usize = args.get(5).map_or(1, |s| s.parse().unwrap());
    let mut rng = Rng(0x1234567);
    let mmax = *ms.iter().max().unwrap();
    let x: Vec<f32> = (0..mmax*k).map(|_| rng.f()).collect();
    let (mut q, mut sc, mut ss, mut su) = (vec![0i8; mmax*k], vec![0f32; mmax*k/32], vec![0f32; mmax*k/32], vec![0i16; mmax*k/16]);
    for i in 0..mmax*k/32 { let b=&x[i*32..][..32]; let am=b.iter().fold(0f32,|a,v|a.max(v.abs())); sc[i]=am/127.0; let mut s=0i32; for j in 0..32 { let v=(b[j]*(127.0/am)).round_ties_even() as i8; q[i*32+j]=v; s+=v as i32; su[i*2+j/16]+=v as i16;} ss[i]=sc[i]*s as f32; }
    for kern in rml_backends::avx2::kernels() {
        if !kern.id().contains(only) { continue; }
        let fmt = kern.format();
        let k = k; if k % fmt.block_len() != 0 { continue; }
        let rb = fmt.row_bytes(k).unwrap();
        let mut src: Vec<u8> = (0..n*rb).map(|_| rng.next() as u8).collect();
        for blk in src.chunks_exact_mut(fmt.block_bytes()) { for &a in f16_at(fmt) { blk[a+1] = 0x20 + (blk[a+1] & 0x83); } }
        if fmt.is_float() { for c in src.chunks_exact_mut(2) { c[1] = 0x34 | (c[1]&0x83); } }
        let lay = kern.layout(n,k).unwrap();
        let np = n.div_ceil(lay.panel_rows);
        let total = np*lay.panel_bytes;
        let mut raw = vec![0u8; total*copies+64];
        let off = raw.as_ptr().align_offset(64);
        let buf = &mut raw[off..off+total*copies];
        let mut tp = f64::MAX;
        for c in 0..copies { let t0=Instant::now(); for p in 0..np { let r=lay.panel_rows.min(n-p*lay.panel_rows); kern.pack_panel(&src[p*lay.panel_rows*rb..][..r*rb], r, k, &mut buf[c*total+p*lay.panel_bytes..][..lay.panel_bytes]); } tp=tp.min(t0.elapsed().as_secs_f64()); }
        print!("{:28} pack {:5.2} GB/s |", kern.id(), src.len() as f64/tp/1e9);
        for &m in &ms {
            let mut out = vec![f32::NAN; m*n];
            let data = match kern.activation() { ActivationKind::F32 => ActivationData::F32(&x[..m*k]), ActivationKind::Q8 => ActivationData::Q8(Q8 { q:&q[..m*k], scale:&sc[..m*k/32], scaled_sum:&ss[..m*k/32], sum:&su[..m*k/16] }) };
            let mut best=f64::MAX; let start=Instant::now(); let mut i=0;
            while i<5*copies || start.elapsed().as_millis()<400 {
                let w = Weights{n,k,layout:lay,bytes:&buf[(i%copies)*total..][..total]};
                let t0=Instant::now();
                // spans of several copies are timed together so that the clock is not what is measured
                kern.multiply(&w,&Activations{m,k,data},&mut TileMut::whole(&mut out,m,n));
                best=best.min(t0.elapsed().as_secs_f64()); i+=1;
            }
            print!(" m{m}: {:7.1}us {:6.1}Gop/s {:5.1}GB/s", best*1e6, 2.0*(m*n*k) as f64/best/1e9, total as f64/best/1e9);
        }
        println!();
    }
}
